// Who makes kernels of elementwise groups, and of groups of rows and of columns, for a device.
//
//   const std::shared_ptr<Fuser> fuser = BuildFuser(*device);  // kernels/select/variant.h
//   const std::shared_ptr<const opw_kernel> kernel = fuser->Get(program);  // as long as it is held
#ifndef OPWIRE_KERNELS_FUSED_FUSER_H_
#define OPWIRE_KERNELS_FUSED_FUSER_H_

#include <memory>
#include <string>

#include "kernels/abi.h"
#include "kernels/fused/column_program.h"
#include "kernels/fused/product_program.h"
#include "kernels/fused/row_program.h"
#include "kernels/fused/scalar_program.h"

namespace opwire::fused {

class Fuser {
 public:
  virtual ~Fuser() = default;

  // Operands are the program's inputs, results its outputs, attributes its arguments. All results
  // have one shape, which the operands broadcast to; any result may share storage with an operand
  // of its type and shape. Equal programs have one kernel. Compiles nothing by itself, so it costs
  // microseconds; the kernel keeps what it needs of the fuser. Any thread. REQUIRES:
  // program.Check().ok().
  virtual std::shared_ptr<const opw_kernel> Get(const ScalarProgram& program) = 0;
  // The same of several members that do the same at one time, each on tensors of shapes of its own:
  // operands, results and arguments are the members' one after another, and a result may share
  // storage with an operand of its member. Null where the device has no such kernels.
  virtual std::shared_ptr<const opw_kernel> GetJoint(const ScalarProgram&, int /*members*/) {
    return nullptr;
  }
  virtual bool HasJoint() const { return false; }
  // The same of a program of rows; a result may share storage with an operand of its place, too.
  // Null where it is too large for one kernel, or the device has none of rows.
  virtual std::shared_ptr<const opw_kernel> GetRows(const RowProgram&) { return nullptr; }
  virtual bool HasRows() const { return false; }
  // The same of a program of columns.
  virtual std::shared_ptr<const opw_kernel> GetColumns(const ColumnProgram&) { return nullptr; }
  virtual bool HasColumns() const { return false; }
  // The same of products, whose operands and results no storage is shared by but a cache's, which
  // its result may have. Null as of rows.
  virtual std::shared_ptr<const opw_kernel> GetProducts(const ProductProgram&) { return nullptr; }
  // Of a few rows; of many.
  virtual bool HasProducts() const { return false; }
  virtual bool HasEpilogues() const { return false; }
  // Nothing is being compiled.
  virtual bool Settled() const = 0;
};

struct HostFuserOptions {
  std::string cache;                      // the build cache's directory; empty: the user's
  std::string worker = "/proc/self/exe";  // ToolchainOptions::worker
};
// Kernels for this processor: interpreted at first, and compiled in the background once they have
// done enough to be worth it.
std::shared_ptr<Fuser> MakeHostFuser(HostFuserOptions options);

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_FUSER_H_
