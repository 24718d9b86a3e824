// Convolution, its transpose and its gradients by oneDNN: f32, and 16-bit floats through f32
// copies, whose sums thus stay f32 from start to end. oneDNN's exceptions are caught here.
#include "kernels/ops/onednn.h"

#include <array>
#include <memory>
#include <vector>

#include "kernels/ops/call.h"
#include "kernels/ops/convolution/convolution.h"
#include "kernels/ops/convolution/shapes.h"
#include "kernels/ops/families.h"
#include "kernels/ops/map_all.h"

namespace opwire::ops::convolution {
namespace {

using dnnl::memory;
using Shapes = ConvolutionShapes;

constexpr auto kF32 = memory::data_type::f32;

// A tensor in the call's layout and in the layout that oneDNN selected; the same memory if the two
// do not differ.
struct Side {
  memory plain, inner;
  bool reordered = false;
  int64_t inner_bytes() const {
    return reordered ? AlignedBytes(static_cast<int64_t>(inner.get_desc().get_size())) : 0;
  }
};

// Convolution primitive for a batch of images.
struct Piece {
  dnnl::primitive primitive;
  Side sides[3];  // by Shapes::Tensor
  dnnl::reorder reorders[3],
      add;  // into the layout, or out of it for the result; `add` adds to the existing result
  memory bias, scratchpad;

  int64_t bytes() const {
    int64_t all = static_cast<int64_t>(scratchpad.get_desc().get_size());
    for (const Side& s : sides) all += s.inner_bytes();
    return all;
  }
};

// The place of one of a call's tensors: an operand's index, or a result's.
struct Source {
  bool result;
  int index;
};

// One of the three tensors is computed from the others, in pieces of some images, so that a run can
// stop between them.
struct Task {
  Shapes shapes;
  Source sources[3];
  bool biased;
  int axes;                          // spatial ones
  int64_t images;                    // of each piece except the last
  std::array<Piece, 2> pieces = {};  // full pieces, and the last if it has fewer images

  int64_t Pieces() const { return (shapes.batch + images - 1) / images; }
};

memory::desc Plain(const memory::dims& extents) {
  memory::dims strides(extents.size(), 1);
  for (size_t a = extents.size() - 1; a-- > 0;) strides[a] = strides[a + 1] * extents[a + 1];
  return memory::desc(extents, kF32, strides);
}

Piece MakePiece(const Task& t, int64_t images) {
  const Shapes& s = t.shapes;
  const int skip = Shapes::kAxes - t.axes;
  const auto with_axes = [&](memory::dims dims, const int64_t* axes) {
    dims.insert(dims.end(), axes + skip, axes + Shapes::kAxes);
    return dims;
  };
  memory::dims of_weight = {s.y_channels, s.x_channels};
  if (s.groups > 1) of_weight.insert(of_weight.begin(), s.groups);
  const memory::dims dims[] = {with_axes({images, s.groups * s.x_channels}, s.x_extents),
                               with_axes(of_weight, s.kernel),
                               with_axes({images, s.groups * s.y_channels}, s.y_extents)};
  memory::desc any[3];
  for (int i = 0; i < 3; ++i) any[i] = memory::desc(dims[i], kF32, memory::format_tag::any);
  const memory::dims stride = with_axes({}, s.stride), padding = with_axes({}, s.padding);
  memory::dims dilation = with_axes({}, s.dilation);
  for (auto& d : dilation) --d;  // elements between
  const auto kWay = dnnl::algorithm::convolution_direct;
  const bool with_bias = t.biased && s.made == Shapes::kY;
  const memory::desc bias = with_bias ? Plain({s.groups * s.y_channels}) : memory::desc();
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, kWay, any[Shapes::kX], any[Shapes::kW], bias,
       any[Shapes::kY], stride, dilation, padding, padding},
      attr, OneDnnEngine());
  Piece p;
  memory::desc inner[3];
  if (s.made == Shapes::kY) {
    p.primitive = dnnl::convolution_forward(forward);
    p.scratchpad = memory(forward.scratchpad_desc(), OneDnnEngine(), nullptr);
    p.bias = memory(bias, OneDnnEngine(), nullptr);
    inner[Shapes::kX] = forward.src_desc(), inner[Shapes::kW] = forward.weights_desc(),
    inner[Shapes::kY] = forward.dst_desc();
  } else if (s.made == Shapes::kX) {
    const dnnl::convolution_backward_data::primitive_desc made(
        {kWay, any[Shapes::kX], any[Shapes::kW], any[Shapes::kY], stride, dilation, padding,
         padding},
        attr, OneDnnEngine(), forward);
    p.primitive = dnnl::convolution_backward_data(made);
    p.scratchpad = memory(made.scratchpad_desc(), OneDnnEngine(), nullptr);
    inner[Shapes::kX] = made.diff_src_desc(), inner[Shapes::kW] = made.weights_desc(),
    inner[Shapes::kY] = made.diff_dst_desc();
  } else {
    const dnnl::convolution_backward_weights::primitive_desc made(
        {kWay, any[Shapes::kX], any[Shapes::kW], any[Shapes::kY], stride, dilation, padding,
         padding},
        attr, OneDnnEngine(), forward);
    p.primitive = dnnl::convolution_backward_weights(made);
    p.scratchpad = memory(made.scratchpad_desc(), OneDnnEngine(), nullptr);
    inner[Shapes::kX] = made.src_desc(), inner[Shapes::kW] = made.diff_weights_desc(),
    inner[Shapes::kY] = made.diff_dst_desc();
  }
  for (int i = 0; i < 3; ++i) {
    Side& side = p.sides[i];
    const memory::desc plain = Plain(dims[i]);
    // The pieces of a weight's gradient are added.
    const bool adds = i == Shapes::kW && s.made == Shapes::kW && t.Pieces() > 1;
    side.reordered = adds || inner[i] != plain;
    side.plain = memory(plain, OneDnnEngine(), nullptr);
    side.inner = memory(inner[i], OneDnnEngine(), nullptr);
    if (!side.reordered) continue;
    const bool out = i == s.made;
    const memory &from = out ? side.inner : side.plain, &to = out ? side.plain : side.inner;
    p.reorders[i] = dnnl::reorder(from, to);
    if (!adds) continue;
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    dnnl::primitive_attr adding;
    adding.set_post_ops(sum);
    p.add = dnnl::reorder(from, to, adding);
  }
  return p;
}

struct State {
  std::vector<Task> tasks;
  int threads = 0;
  dnnl::stream stream;
  bool copies = false;       // true: the type is convolved through f32 copies
  int64_t copies_bytes = 0;  // of these, at the beginning of the workspace: operands, then results
  int64_t piece_bytes = 0;   // after the copies
};

// Makes the state's pieces for a number of threads, in `tasks`. Returns the memory that one needs.
int64_t MakePieces(std::vector<Task>& tasks, int threads) {
  const OneDnnThreads of_primitives(threads);
  int64_t bytes = 0;
  for (Task& t : tasks) {
    const int64_t images[] = {t.images, t.shapes.batch % t.images};
    for (size_t i = 0; i < 2; ++i) {
      if (images[i] == 0) continue;
      t.pieces[i] = MakePiece(t, images[i]);
      bytes = std::max(bytes, t.pieces[i].bytes());
    }
  }
  return bytes;
}

Task TaskOf(const Shapes& s, const std::array<Source, 3>& sources, bool biased, int threads) {
  const int64_t products =
      s.groups * s.y_channels * s.x_channels * s.KernelPositions() * s.YPositions();
  const int64_t images = std::clamp<int64_t>(kOneDnnCallWork * threads / products, 1, s.batch);
  return {s,
          {sources[0], sources[1], sources[2]},
          biased,
          s.places[Shapes::kW].tensor->rank - 2,
          images};
}

std::vector<Task> ForwardTasks(const opw_call* c, int threads) {
  const Shapes s = Shapes::Forward(c);
  const Source input{false, 0}, weight{false, 1}, y{true, 0};
  const bool transposed = s.made == Shapes::kX;
  return {TaskOf(s, {transposed ? y : input, weight, transposed ? input : y},
                 !Absent(Operand(c, 2)), threads)};
}
std::vector<Task> BackwardTasks(const opw_call* c, int threads) {
  const Shapes by_input = Shapes::GradInput(c);
  const Source grad{false, 0}, input{false, 1}, weight{false, 2}, grad_input{true, 0},
      grad_weight{true, 1};
  const bool transposed = by_input.made == Shapes::kY;
  return {
      TaskOf(by_input, {transposed ? grad : grad_input, weight, transposed ? grad_input : grad},
             false, threads),
      TaskOf(Shapes::GradWeight(c),
             {transposed ? grad : input, grad_weight, transposed ? input : grad}, false, threads)};
}

// Calls f for the tensors that are f32 copies of others, in storage order.
template <typename F>
void ForTensors(const opw_call* c, int operands, int results, const F& f) {
  for (int i = 0; i < operands; ++i) {
    if (!Absent(Operand(c, i))) f(Source{false, i}, Operand(c, i));
  }
  for (int i = 0; i < results; ++i) f(Source{true, i}, c->results[i]);
}

constexpr int kOperands = 3;  // of both rows

const char* SupportsShapes(const opw_call* c, const Shapes& s) {
  if (s.Nothing()) return "nothing to sum";
  if (!s.IsWhole()) return "output_padding of a stride or more";
  if (TypeOf(c->results[0]) != DType::kF32 && elementwise::WidestCasts() == nullptr)
    return "16-bit floats need avx2 and f16c";
  return nullptr;
}
const char* SupportsForward(const opw_call* c) { return SupportsShapes(c, Shapes::Forward(c)); }
const char* SupportsBackward(const opw_call* c) { return SupportsShapes(c, Shapes::GradInput(c)); }

template <std::vector<Task> (*kTasks)(const opw_call*, int), int kResults>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  auto s = std::make_unique<State>();
  const DType type = TypeOf(c->results[0]);
  if (type != DType::kF32) {
    s->copies = true;
    ForTensors(c, kOperands, kResults, [&](Source, const opw_tensor& t) {
      s->copies_bytes += AlignedBytes(t.elements * static_cast<int64_t>(sizeof(float)));
    });
  }
  try {
    s->threads = ThreadsOf(c);
    s->stream = dnnl::stream(OneDnnEngine());
    s->tasks = kTasks(c, s->threads);
    s->piece_bytes = MakePieces(s->tasks, s->threads);
  } catch (const dnnl::error&) {
    return OPW_FAILED;
  }
  *workspace_bytes = s->copies_bytes + s->piece_bytes;
  *state = s.release();
  return OPW_OK;
}

void Release(void* state) { delete static_cast<State*>(state); }

// Adds each channel's bias to x, which is the result.
void AddBias(const opw_call* c, const Shapes& s, float* x, const float* bias) {
  const int64_t channels = s.groups * s.x_channels, positions = s.XPositions();
  ParallelFor(c, s.batch * channels, std::max<int64_t>(1, 16384 / positions),
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  const float added = bias[row % channels];
                  for (int64_t i = 0; i < positions; ++i) x[row * positions + i] += added;
                }
              });
}

// `tensors`: x, w and y; `memory_of_pieces`: of State::piece_bytes.
void RunTask(const opw_call* c, Task& t, dnnl::stream& stream, float* const (&tensors)[3],
             float* bias, char* memory_of_pieces) {
  const Shapes& s = t.shapes;
  const int64_t of_image[] = {s.groups * s.x_channels * s.XPositions(), 0,
                              s.groups * s.y_channels * s.YPositions()};
  static constexpr int kArguments[3][3] = {
      {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
      {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
      {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}};  // [made][tensor]
  for (int64_t image = 0; image < s.batch; image += t.images) {
    if (image > 0 && Stopped(c)) return;
    const bool last = s.batch - image < t.images, first = image == 0;
    Piece& p = t.pieces[last];
    std::unordered_map<int, memory> arguments;
    char* at = memory_of_pieces;
    for (int i = 0; i < 3; ++i) {
      Side& side = p.sides[i];
      side.plain.set_data_handle(tensors[i] + image * of_image[i]);
      side.inner.set_data_handle(side.reordered ? static_cast<void*>(at)
                                                : tensors[i] + image * of_image[i]);
      at += side.inner_bytes();
      arguments.insert({kArguments[s.made][i], side.inner});
      // A weight stays as the previous piece of its kind left it.
      if (side.reordered && i != s.made && (i != Shapes::kW || first || last))
        p.reorders[i].execute(stream, side.plain, side.inner);
    }
    p.scratchpad.set_data_handle(at);
    arguments.insert({DNNL_ARG_SCRATCHPAD, p.scratchpad});
    if (t.biased && s.made == Shapes::kY) {
      p.bias.set_data_handle(bias);
      arguments.insert({DNNL_ARG_BIAS, p.bias});
    }
    p.primitive.execute(stream, arguments);
    Side& made = p.sides[s.made];
    if (made.reordered)
      (s.made == Shapes::kW && !first ? p.add : p.reorders[s.made])
          .execute(stream, made.inner, made.plain);
  }
  if (t.biased && s.made == Shapes::kX) AddBias(c, s, tensors[Shapes::kX], bias);
}

template <int kResults>
void Execute(const opw_call* c, State* s) {
  if (s->threads != c->runtime->threads) {
    // The primitives were made for another number of threads: make them for these, unless they need
    // more memory than `prepare` asked for.
    std::vector<Task> tasks = s->tasks;
    if (MakePieces(tasks, c->runtime->threads) <= s->piece_bytes) s->tasks = std::move(tasks);
    s->threads = c->runtime->threads;
  }
  char* const workspace = static_cast<char*>(c->workspace);
  float* places[2][kOperands] = {};  // of operands and results
  char* at = workspace;
  ForTensors(c, kOperands, kResults, [&](Source source, const opw_tensor& t) {
    float*& place = places[source.result][source.index];
    place = static_cast<float*>(s->copies ? static_cast<void*>(at) : t.data);
    if (!s->copies) return;
    at += AlignedBytes(t.elements * static_cast<int64_t>(sizeof(float)));
    if (!source.result) CastAll(c, place, OPW_F32, t.data, t.dtype, t.elements);
  });
  for (Task& t : s->tasks) {
    float* tensors[3];
    for (int i = 0; i < 3; ++i) tensors[i] = places[t.sources[i].result][t.sources[i].index];
    RunTask(c, t, s->stream, tensors, t.biased ? places[0][2] : nullptr,
            workspace + s->copies_bytes);
  }
  for (int i = 0; i < kResults && s->copies; ++i)
    CastAll(c, c->results[i].data, c->results[i].dtype, places[1][i], OPW_F32,
            c->results[i].elements);
}

template <int kResults>
int Run(const opw_call* c) {
  try {
    Execute<kResults>(c, static_cast<State*>(c->state));
  } catch (const dnnl::error&) {
    return OPW_FAILED;
  }
  return OPW_OK;
}

}  // namespace

void AddConvolutionOneDnn(VariantTable& table, const Isa& isa) {
  const DTypeSet types = {DType::kF32, DType::kF16, DType::kBF16};
  AddProduction(table, isa, "convolution", "onednn", "", 0, types,
                {OPW_ABI_VERSION, OPW_CONTIGUOUS, SupportsForward, Prepare<ForwardTasks, 1>,
                 Release, Run<1>});
  AddProduction(table, isa, "convolution_backward", "onednn", "", 0, types,
                {OPW_ABI_VERSION, OPW_CONTIGUOUS, SupportsBackward, Prepare<BackwardTasks, 2>,
                 Release, Run<2>});
}

}  // namespace opwire::ops::convolution
