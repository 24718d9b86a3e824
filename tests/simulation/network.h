// A clock and a network that a seed decides. Messages are in order on one connection, as on
// ZeroMQ's and on rings, but not across connections. A broken connection loses the messages in
// transit, later on one side than on the other. Each side learns of it in its own time.
#ifndef OPWIRE_TESTS_SIMULATION_NETWORK_H_
#define OPWIRE_TESTS_SIMULATION_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ir/wire/channel.h"

namespace opwire::sim {

using NodeId = int;

// Events in order of time. Events of equal time are in order of creation.
class Clock {
 public:
  void At(Nanos when, std::function<void()> what) {
    events_.push({std::max(when, now_), next_++, std::move(what)});
  }
  void After(Nanos delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  // Returns false if there is no event before `until`.
  bool Step(Nanos until) {
    if (events_.empty() || events_.top().when > until) return false;
    auto what = std::move(const_cast<Event&>(events_.top()).what);
    now_ = events_.top().when;
    events_.pop();
    what();
    return true;
  }
  Nanos now() const { return now_; }

 private:
  struct Event {
    Nanos when;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& o) const {
      return when != o.when ? when > o.when : number > o.number;
    }
  };
  std::priority_queue<Event> events_;
  Nanos now_ = 1000 * kSecond;
  uint64_t next_ = 0;
};

// The actions of a server on messages of its connections.
class Server {
 public:
  virtual ~Server() = default;
  virtual void OnMessage(PeerId peer, const std::string& head, const std::string& bulk) = 0;
  virtual void OnGone(PeerId peer) = 0;
};

class Network {
 public:
  struct Client {
    std::function<void(ClientChannel::Message)> on_message;
    std::function<void()> on_lost;
  };

  Network(Clock& clock, uint64_t seed) : clock_(clock), random_(seed) {}

  // Sets a server's address: one node has several. Null takes it down, which breaks its
  // connections.
  void Listen(const std::string& address, NodeId node, Server* server) {
    listeners_[address] = {node, server};
    if (server) return;
    for (auto& [id, c] : connections_) {
      if (c->address == address) Break(id);
    }
  }
  // Returns the connection's number, which is the server's peer. `on_lost` is called if there is no
  // listener or the way is cut.
  PeerId Connect(NodeId from, const std::string& address, Client client) {
    const PeerId id = next_++;
    auto c = std::make_unique<Connection>();
    c->from = from;
    c->address = address;
    c->client = std::move(client);
    connections_[id] = std::move(c);
    if (!Reaches(*connections_[id])) Break(id);
    return id;
  }
  void SendToServer(PeerId id, std::string head, std::string bulk = "") {
    Send(id, true, std::move(head), std::move(bulk));
  }
  void SendToClient(PeerId id, std::string head, std::string bulk = "") {
    Send(id, false, std::move(head), std::move(bulk));
  }
  // Returns whether the client has much to read: sometimes for a while.
  bool Full(PeerId id) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return false;
    Connection& c = *it->second;
    if (faults_ && random_() % 100 == 0) c.full_until = clock_.now() + Upto(500 * kMillisecond);
    return clock_.now() < c.full_until;
  }
  // The server ends the connection.
  void Drop(PeerId id) {
    if (connections_.contains(id)) Break(id);
  }
  // The client closes: it receives nothing more, and the server learns of it soon.
  void Close(PeerId id) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;
    it->second->client = {};
    Break(id);
  }

  void Break(PeerId id) {
    Connection& c = *connections_.at(id);
    if (c.broken) return;
    c.broken = true;
    c.last[0] = clock_.now() + Upto(300 * kMillisecond);
    c.last[1] = clock_.now() + Upto(300 * kMillisecond);
    clock_.After(Upto(700 * kMillisecond), [this, id] {
      const auto it = connections_.find(id);
      if (it == connections_.end()) return;
      it->second->last[1] = 0;
      if (auto lost = std::exchange(it->second->client, {}).on_lost) lost();
    });
    clock_.At(c.last[0] + Upto(700 * kMillisecond), [this, id, address = c.address] {
      if (Server* s = listeners_[address].server) s->OnGone(id);
    });
    clock_.After(2 * kSecond, [this, id] { connections_.erase(id); });
  }
  // Cuts two nodes off from each other until then; existing connections break.
  void Cut(NodeId a, NodeId b, Nanos until) {
    cut_[{std::min(a, b), std::max(a, b)}] = until;
    std::vector<PeerId> broken;
    for (const auto& [id, c] : connections_) {
      if (!Reaches(*c)) broken.push_back(id);
    }
    for (PeerId id : broken) Break(id);
  }
  void BreakOne() {
    std::vector<PeerId> all;
    for (const auto& [id, c] : connections_) {
      if (!c->broken) all.push_back(id);
    }
    if (!all.empty()) Break(all[random_() % all.size()]);
  }
  void Heal() {
    cut_.clear();
    faults_ = false;
  }

  uint64_t hash() const { return hash_; }
  uint64_t delivered() const { return delivered_; }

 private:
  struct Connection {
    NodeId from = 0;
    std::string address;
    Client client;
    bool broken = false;
    Nanos full_until = 0;
    Nanos ready[2] = {0, 0};           // when the last message of a direction arrives
    Nanos last[2] = {kNever, kNever};  // of a broken one: what arrives later is lost
  };
  struct Listener {
    NodeId node = 0;
    Server* server = nullptr;
  };

  Nanos Upto(Nanos most) { return static_cast<Nanos>(random_() % static_cast<uint64_t>(most)); }
  bool Reaches(const Connection& c) {
    const Listener& l = listeners_[c.address];
    const auto cut = cut_.find({std::min(c.from, l.node), std::max(c.from, l.node)});
    return l.server && (cut == cut_.end() || clock_.now() >= cut->second);
  }
  void Send(PeerId id, bool to_server, std::string head, std::string bulk) {
    const auto it = connections_.find(id);
    if (it == connections_.end() || it->second->broken) return;
    Connection& c = *it->second;
    // Mostly fast, sometimes slow; never before earlier messages.
    const Nanos delay = random_() % 20 ? Upto(2 * kMillisecond) : Upto(200 * kMillisecond);
    const int way = to_server ? 0 : 1;
    c.ready[way] = std::max(c.ready[way] + 1, clock_.now() + delay);
    const int copies = to_server && faults_ && random_() % 50 == 0 ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      clock_.At(c.ready[way],
                [this, id, to_server, head, bulk] { Deliver(id, to_server, head, bulk); });
    }
  }
  void Deliver(PeerId id, bool to_server, const std::string& head, const std::string& bulk) {
    const auto it = connections_.find(id);
    if (it == connections_.end() || clock_.now() > it->second->last[to_server ? 0 : 1]) return;
    ++delivered_;
    Mix(static_cast<uint64_t>(clock_.now()));
    Mix(id * 2 + to_server);
    for (unsigned char byte : head) Mix(byte);
    if (to_server) {
      if (Server* s = listeners_[it->second->address].server) s->OnMessage(id, head, bulk);
    } else if (it->second->client.on_message) {
      const auto on_message = it->second->client.on_message;  // it may close the connection
      on_message({head, bulk});
    }
  }
  void Mix(uint64_t v) { hash_ = (hash_ ^ v) * 0x100000001b3; }

  Clock& clock_;
  std::mt19937_64 random_;
  std::map<std::string, Listener> listeners_;
  std::map<PeerId, std::unique_ptr<Connection>> connections_;
  std::map<std::pair<NodeId, NodeId>, Nanos> cut_;
  bool faults_ = true;  // duplicates, clients that do not read
  PeerId next_ = 1;
  uint64_t hash_ = 0xcbf29ce484222325;
  uint64_t delivered_ = 0;
};

}  // namespace opwire::sim

#endif  // OPWIRE_TESTS_SIMULATION_NETWORK_H_
