// Whether to write golden files of the present version again; set by main.
#ifndef OPWIRE_TESTS_IR_GOLDEN_H_
#define OPWIRE_TESTS_IR_GOLDEN_H_

namespace opwire {

extern bool update_golden;

}  // namespace opwire

#endif  // OPWIRE_TESTS_IR_GOLDEN_H_
