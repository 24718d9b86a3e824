// The contents of the golden files: one message of each kind with every field set, and a program
// that uses every part of its schema.
//
// `minor` is the protocol's minor version of the file. A field or kind that was added later is set
// only if `minor` includes it, so the values of an old file never change.
#ifndef OPWIRE_TESTS_IR_GOLDEN_VALUES_H_
#define OPWIRE_TESTS_IR_GOLDEN_VALUES_H_

#include <vector>

#include "ir/program/module.h"
#include "ir/schema/wire_generated.h"

namespace opwire::golden {

std::vector<fb::RequestT> Requests(int minor);
std::vector<fb::ReplyT> Replies(int minor);
// A module that passes the verifier. `Everything` does not pass: it has an unknown feature, calls,
// and attributes of every kind in one node.
Module Verified(int minor);
Module Everything(int minor);

}  // namespace opwire::golden

#endif  // OPWIRE_TESTS_IR_GOLDEN_VALUES_H_
