// Trains GPT-2 by requests of many steps each: the executor runs the loop on its own, and sends the
// loss of each step meanwhile.
//
//   gpt2 TEXT [--steps N] [--losses FILE] [--initial DIRECTORY] [--narrow | --wide] [--profile]
//   [--layers N] [--heads N] [--width N] [--positions N] [--batch N] [--vocabulary N]
//
// A token is a byte of the text. --narrow: all is bf16, without f32 copies of the weights; --wide:
// all is f32, which suits CPUs; --initial: the folder for the initial weights, for torch_gpt2.py.
// model.h makes the program.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "examples/03_gpt2/state.h"
#include "frontend/cpp/client.h"

namespace {

using namespace opwire;
using namespace opwire::client;
using namespace opwire::examples;

constexpr double kRate = 6e-4, kLeast = 0.1;  // kLeast: of the rate, at the end
constexpr int64_t kWarmUp = 40, kRequest = 100;

struct Options {
  std::string text, losses, initial;
  int64_t steps = 400;
  bool profile = false;
  Gpt2Config model;
};

// Up in a line, then down by half a cosine.
Array Rates(int64_t steps) {
  Array rates(DType::kF32, {steps});
  const int64_t warm_up = std::min(kWarmUp, steps / 4 + 1);
  for (int64_t i = 0; i < steps; ++i) {
    const double down = static_cast<double>(std::max<int64_t>(0, i - warm_up)) /
                        static_cast<double>(std::max<int64_t>(1, steps - warm_up));
    const double part = i < warm_up ? static_cast<double>(i + 1) / static_cast<double>(warm_up)
                                    : kLeast + (1 - kLeast) * (1 + std::cos(M_PI * down)) / 2;
    rates.values<float>()[static_cast<size_t>(i)] = static_cast<float>(kRate * part);
  }
  return rates;
}

StatusOr<Array> Tokens(const Options& options) {
  std::ifstream in(options.text, std::ios::binary);
  if (!in)
    return NotFound("{} cannot be read; examples/03_gpt2/README.md says where a text comes from",
                    options.text);
  std::stringstream text;
  text << in.rdbuf();
  const std::string bytes = text.str();
  const int64_t window = options.model.batch * options.model.positions,
                count = static_cast<int64_t>(bytes.size());
  if (count <= window)
    return InvalidArgument("{}: expected more than the {} bytes of a step, got {}", options.text,
                           window, count);
  Array tokens(DType::kI32, {count});
  for (size_t i = 0; i < bytes.size(); ++i)
    tokens.values<int32_t>()[i] = static_cast<uint8_t>(bytes[i]);
  return tokens;
}

// The weights that the state begins with, for others to begin with.
Status WriteInitial(const Options& options) {
  const std::vector<Gpt2Weight> weights = Gpt2Weights(options.model);
  for (size_t i = 0; i < weights.size(); ++i)
    OPWIRE_RETURN_IF_ERROR(Gpt2InitialWeight(weights[i], i)
                               .WriteNpy(options.initial + "/" + weights[i].name + ".npy"));
  return absl::OkStatus();
}

void PrintProfile(const Program& program, const std::vector<StepCost>& profile) {
  std::map<std::string, std::pair<int64_t, int64_t>> kinds;
  int64_t total = 0;
  for (const StepCost& c : profile) {
    std::string name = c.label;
    const Function& f = program.module().functions[static_cast<size_t>(std::max(c.function, 0))];
    if (c.node >= 0 && static_cast<size_t>(c.node) < f.nodes.size() &&
        !f.nodes[static_cast<size_t>(c.node)].results.empty()) {
      name +=
          " " + ToString(f.nodes[static_cast<size_t>(c.node)].results[0], program.module().dims);
    }
    kinds[name].first += c.ns;
    kinds[name].second += 1;
    total += c.ns;
  }
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> sorted(kinds.begin(),
                                                                          kinds.end());
  std::ranges::sort(sorted, std::ranges::greater(), [](const auto& k) { return k.second.first; });
  for (const auto& [name, cost] : sorted) {
    if (cost.first * 500 > total)
      fmt::print("{:>10.3f} ms {:>5.1f} % {:>4} nodes  {}\n", static_cast<double>(cost.first) / 1e6,
                 100.0 * static_cast<double>(cost.first) / static_cast<double>(total), cost.second,
                 name);
  }
}

Status Train(const Options& options) {
  const Gpt2Config& model = options.model;
  OPWIRE_ASSIGN_OR_RETURN(const Array tokens, Tokens(options));
  OPWIRE_ASSIGN_OR_RETURN(const Module module, Gpt2Training(model));
  OPWIRE_ASSIGN_OR_RETURN(Client client, Client::Connect({.registries = {}, .name = "gpt2"}));
  OPWIRE_ASSIGN_OR_RETURN(Session session, client.Open());
  OPWIRE_ASSIGN_OR_RETURN(const Program train, session.Load(module));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<Tensor> state, PutGpt2State(session, model));
  if (!options.initial.empty()) OPWIRE_RETURN_IF_ERROR(WriteInitial(options));
  OPWIRE_ASSIGN_OR_RETURN(const Tensor text, session.Put(tokens.view()));
  OPWIRE_ASSIGN_OR_RETURN(const Tensor rates, session.Put(Rates(options.steps).view()));
  const int64_t window = model.batch * model.positions;

  std::vector<float> losses;
  RunOptions run;
  run.profile = options.profile;
  run.on_emit = [&](std::string_view, const Array& lost) {
    losses.push_back(lost.values<float>()[0]);
  };
  for (int64_t first = 0; first < options.steps;) {
    const int64_t steps =
        std::min(first == 0 ? 2 : kRequest,
                 options.steps - first);  // the first ones prepare what the others use
    std::vector<Arg> args = {steps};
    args.insert(args.end(), state.begin(), state.end());
    args.insert(args.end(), {text, rates, first, (tokens.elements() - 1) / window});
    OPWIRE_ASSIGN_OR_RETURN(const RunResult result, train.Run(args, run));
    first += steps;
    const double seconds = static_cast<double>(result.run_ns) / 1e9;
    fmt::print("step {:>5}/{}  loss {:.4f}  {:.1f} ms a step, {:.0f} tokens/s\n", first,
               options.steps, losses.back(), seconds * 1e3 / static_cast<double>(steps),
               static_cast<double>(steps * window) / seconds);
    if (options.profile && first >= options.steps) PrintProfile(train, result.profile);
  }
  if (options.losses.empty()) return absl::OkStatus();
  std::ofstream out(options.losses);
  for (const float l : losses) out << fmt::format("{:.6f}\n", l);
  return out.flush() ? absl::OkStatus() : Internal("{} cannot be written", options.losses);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::string*> texts = {{"--losses", &options.losses},
                                                     {"--initial", &options.initial}};
  Gpt2Config& m = options.model;
  const std::map<std::string, int64_t*> numbers = {
      {"--steps", &options.steps},    {"--layers", &m.layers},       {"--heads", &m.heads},
      {"--width", &m.width},          {"--positions", &m.positions}, {"--batch", &m.batch},
      {"--vocabulary", &m.vocabulary}};
  bool good = argc > 1;
  for (int i = 1; i < argc && good; ++i) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--profile") {
      options.profile = true;
    } else if (flag == "--narrow" || flag == "--wide") {
      m.masters = false;
      if (flag == "--wide") m.dtype = DType::kF32;
    } else if (const auto text = texts.find(flag); text != texts.end() && !value.empty()) {
      *text->second = value, ++i;
    } else if (const auto number = numbers.find(flag); number != numbers.end()) {
      const auto [end, error] =
          std::from_chars(value.data(), value.data() + value.size(), *number->second);
      good = error == std::errc() && end == value.data() + value.size() && *number->second > 0;
      ++i;
    } else if (options.text.empty() && !flag.starts_with("--")) {
      options.text = flag;
    } else {
      good = false;
    }
  }
  if (!good || options.text.empty() || m.width % m.heads != 0) {
    fmt::print(stderr,
               "gpt2: expected TEXT [--steps N] [--losses FILE] [--initial DIRECTORY] [--narrow | "
               "--wide] [--profile] [--layers N] [--heads N, a divisor of the width] [--width N] "
               "[--positions N] [--batch N] [--vocabulary N]\n");
    return 2;
  }
  const Status status = Train(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "gpt2: {}\n", MessageOf(status));
  return 1;
}
