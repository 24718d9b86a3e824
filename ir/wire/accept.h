// A bound on the descriptors that connections may take. ZeroMQ accepts as fast as clients connect,
// faster than anybody can close, and ends the process when accept() finds no descriptor on an ipc
// socket.
#ifndef OPWIRE_IR_WIRE_ACCEPT_H_
#define OPWIRE_IR_WIRE_ACCEPT_H_

namespace opwire {

// From now on accept() and accept4() of this process close a connection that got the descriptor
// `most` or one above. They fail with ECONNABORTED, which servers take for a client that went away.
// For programs: their accept() comes before that of the C library.
void BoundAcceptedDescriptors(int most);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_ACCEPT_H_
