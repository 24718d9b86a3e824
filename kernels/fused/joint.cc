// Members' ranges of elements one after the other, a few small members or a part of a large one for
// a thread at a time.
#include "kernels/fused/joint.h"

#include <algorithm>

#include "kernels/fused/driver.inc.h"

namespace opwire::fused {

// What is known once sizes are bound.
struct JointKernel::State {
  // A range of a member's work, as CutOf counts it.
  struct Piece {
    int32_t member;
    int64_t begin, end;
  };
  std::vector<void*> layouts;    // by member
  std::vector<Piece> pieces;     // by member
  std::vector<uint32_t> ranges;  // where each begins among the pieces, and one past the last; of
                                 // about kGrain elements
  int64_t elements = 0;          // of all members

  State() = default;
  State(const State&) = delete;
  ~State() {
    for (void* const layout : layouts) ReleaseLayout(layout);
  }
};

JointKernel::JointKernel(std::shared_ptr<const Functions> functions, int members)
    : functions_(std::move(functions)),
      members_(members),
      inputs_(static_cast<int>(functions_->programs()[0].inputs().size())),
      outputs_(static_cast<int>(functions_->programs()[0].outputs().size())),
      arguments_(functions_->programs()[0].arguments()) {
  const ScalarProgram& program = functions_->programs()[0];
  for (const DType type : program.inputs()) types_.push_back(static_cast<uint8_t>(type));
  for (int i = 0; i < outputs_; ++i) types_.push_back(static_cast<uint8_t>(program.OutputType(i)));
}

opw_call JointKernel::CallOf(const opw_call* c, int member) const {
  opw_call one = *c;
  one.operands += member * inputs_;
  one.results += member * outputs_;
  if (arguments_ > 0) one.attrs += member * arguments_;
  return one;
}

const char* JointKernel::Supports(const opw_call* c) {
  const JointKernel& joint = Of(c);
  for (int m = 0; m < joint.members_; ++m) {
    const opw_call one = joint.CallOf(c, m);
    if (const char* const why =
            SupportsTypes(&one, joint.inputs_, joint.outputs_, joint.types_.data()))
      return why;
  }
  return nullptr;
}

int JointKernel::Prepare(const opw_call* c, void** state, int64_t*) {
  const JointKernel& joint = Of(c);
  auto made = std::make_unique<State>();
  int64_t in_range = 0;  // elements
  for (int m = 0; m < joint.members_; ++m) {
    const opw_call one = joint.CallOf(c, m);
    void*& layout = made->layouts.emplace_back();
    if (PrepareLayout(&one, joint.inputs_, joint.outputs_, &layout) != OPW_OK) return OPW_FAILED;
    const Layout& l = *static_cast<const Layout*>(layout);
    made->elements += l.elements;
    if (l.elements == 0) continue;
    const Cut cut = CutOf(l);
    for (int64_t begin = 0; begin < cut.n; begin += cut.grain) {
      const int64_t end = std::min(cut.n, begin + cut.grain);
      const int64_t elements = (end - begin) * (l.direct ? cut.part : 1);
      if (made->ranges.empty() || in_range + elements > kGrain) {
        made->ranges.push_back(static_cast<uint32_t>(made->pieces.size()));
        in_range = 0;
      }
      in_range += elements;
      made->pieces.push_back({m, begin, end});
    }
  }
  made->ranges.push_back(static_cast<uint32_t>(made->pieces.size()));
  *state = made.release();
  return OPW_OK;
}

void JointKernel::Release(void* state) { delete static_cast<State*>(state); }

int JointKernel::Run(const opw_call* c) {
  const JointKernel& joint = Of(c);
  const auto& state = *static_cast<const State*>(c->state);
  struct Context {
    const JointKernel& joint;
    const State& state;
    const opw_call* c;
    Functions::One now;
  } context{joint, state, c, joint.functions_->Now()[0]};
  const opw_body run = [](void* of, int64_t begin, int64_t end) {
    const Context& x = *static_cast<const Context*>(of);
    for (uint32_t i = x.state.ranges[static_cast<size_t>(begin)];
         i < x.state.ranges[static_cast<size_t>(end)]; ++i) {
      const State::Piece& piece = x.state.pieces[i];
      opw_call one = x.joint.CallOf(x.c, piece.member);
      one.context = x.now.context;
      const Layout& l =
          *static_cast<const Layout*>(x.state.layouts[static_cast<size_t>(piece.member)]);
      const Cut cut = CutOf(l);
      const Job job{l, &one, x.now.run, cut.part, cut.parts};
      job.Run(piece.begin, piece.end);
    }
  };
  const auto ranges = static_cast<int64_t>(state.ranges.size()) - 1;
  if (ranges == 1)
    run(&context, 0, 1);
  else if (ranges > 1)
    c->runtime->parallel_for(c->runtime, ranges, 1, run, &context);
  joint.functions_->Worked(state.elements);
  return OPW_OK;
}

opw_kernel JointKernel::kernel() const {
  return {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, Supports, Prepare, Release, Run, this};
}

}  // namespace opwire::fused
