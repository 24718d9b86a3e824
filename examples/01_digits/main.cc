// Trains a small network on handwritten digits, on an executor in another process, and shows what
// it learned. `make demo` starts a registry and an executor and runs this.
//
//   digits [--epochs N] [--save FILE.opw] [--examples DIRECTORY]
//
// FILE.opw: the trained network as one program, for `opwire run`. DIRECTORY: where data/ and
// 01_digits/ lie (default: examples).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include "examples/data/digits.h"
#include "frontend/cpp/client.h"
#include "frontend/cpp/placement.h"
#include "ir/text/text.h"

namespace {

using namespace opwire;
using namespace opwire::client;
using namespace opwire::examples;

constexpr int64_t kBatch = 32;
constexpr uint64_t kSeed = 7;

void Draw(const Array& images, const std::vector<int64_t>& which, const Array& digits,
          const Array& labels) {
  static constexpr const char* kShades[] = {"  ", "░░", "▒▒", "▓▓", "██"};
  for (int64_t y = 0; y < 8; ++y) {
    for (int64_t i : which) {
      for (int64_t x = 0; x < 8; ++x)
        fmt::print("{}",
                   kShades[images.bytes()[static_cast<size_t>(i * kPixels + y * 8 + x)] * 4 / 16]);
      fmt::print("   ");
    }
    fmt::print("\n");
  }
  for (int64_t i : which) {
    const int64_t said = digits.values<int64_t>()[static_cast<size_t>(i)];
    const int32_t is = labels.values<int32_t>()[static_cast<size_t>(i)];
    fmt::print("{:<19}",
               fmt::format("reads {}{}", said, said == is ? "" : fmt::format(", is {}", is)));
  }
  fmt::print("\n");
}

// The network with its weights as constants: one parameter is left, the images.
std::string WithConstants(const std::string& predict, const std::map<std::string, Array>& weights) {
  std::string parameters, constants, blobs;
  int blob = 0;
  for (const auto& [name, a] : weights) {
    constants += fmt::format("  %{} = constant() {{type = f32{}, value = #{}}}\n", name,
                             ShapeToString(a.shape()), blob);
    blobs += fmt::format("\nblob {} =\n", blob++);
    std::string hex;
    for (uint8_t byte : a.bytes()) hex += fmt::format("{:02x}", byte);
    for (size_t i = 0; i < hex.size(); i += 120) blobs += "  \"" + hex.substr(i, 120) + "\"\n";
  }
  const size_t body = predict.find("{\n") + 2;
  return "// A trained network that reads handwritten digits: images of 8 x 8 pixels from 0 to 16 "
         "in, probabilities out.\n\n"
         "program @mlp(%images: u8[?b, 64]) -> (probabilities: f32[?b, 10], digit: i64[?b]) {\n" +
         constants + predict.substr(body) + blobs;
}

Status Train(int epochs, const std::string& save, const std::string& examples) {
  OPWIRE_ASSIGN_OR_RETURN(const Array images, Array::ReadNpy(examples + "/data/digits.npy"));
  OPWIRE_ASSIGN_OR_RETURN(const Array labels, Array::ReadNpy(examples + "/data/labels.npy"));
  OPWIRE_ASSIGN_OR_RETURN(const std::string train_text,
                          ReadExample(examples + "/01_digits/train.opw"));
  OPWIRE_ASSIGN_OR_RETURN(const std::string predict_text,
                          ReadExample(examples + "/01_digits/predict.opw"));

  OPWIRE_ASSIGN_OR_RETURN(Client client, Client::Connect({.registries = {}, .name = "digits"}));
  OPWIRE_ASSIGN_OR_RETURN(Session session, client.Open());
  fmt::print("session on executor {} over {}\n", session.executor(),
             session.on_ring() ? "shared memory" : "ZeroMQ");
  OPWIRE_ASSIGN_OR_RETURN(Program train, session.Load(train_text, "train.opw"));
  OPWIRE_ASSIGN_OR_RETURN(Program predict, session.Load(predict_text, "predict.opw"));

  std::mt19937_64 random(kSeed);
  std::vector<int64_t> order(static_cast<size_t>(images.shape()[0]));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const size_t held_out = order.size() / 5, training = order.size() - held_out;
  const std::vector<int64_t> test(order.begin() + static_cast<ptrdiff_t>(training), order.end());
  order.resize(training);
  const Array test_images = Rows(images, test, 0, held_out),
              test_labels = Rows(labels, test, 0, held_out);

  const auto& shapes = DigitWeights();
  std::vector<Tensor> state;
  for (const bool velocity : {false, true}) {
    for (const auto& [name, shape] : shapes) {
      const Array initial = velocity ? Array(DType::kF32, shape) : InitialWeight(shape, random);
      OPWIRE_ASSIGN_OR_RETURN(Tensor t,
                              session.Put(initial.view(), velocity ? "velocity of " + name : name));
      state.push_back(t);
    }
  }

  const auto accuracy = [&]() -> StatusOr<double> {
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<Array> out,
                            predict.Call({test_images, state[0], state[1], state[2], state[3]}));
    int64_t right = 0;
    for (size_t i = 0; i < held_out; ++i)
      right += out[1].values<int64_t>()[i] == test_labels.values<int32_t>()[i];
    return static_cast<double>(right) / static_cast<double>(held_out);
  };

  fmt::print("training on {} images, {} held out, batches of {}\n\n", training, held_out, kBatch);
  const auto begun = std::chrono::steady_clock::now();
  int64_t steps = 0, device_ns = 0;
  RunOptions options;
  options.wants = {Want::kInline};
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    double loss = 0;
    int64_t count = 0;
    const double rate = 0.1 * (1 - 0.9 * (epoch - 1) / epochs);
    // A few steps are in flight at once; the order of requests is the order of steps.
    std::vector<PendingRun> flying;
    const auto land = [&]() -> Status {
      OPWIRE_ASSIGN_OR_RETURN(const RunResult r, flying.front().Wait());
      flying.erase(flying.begin());
      loss += r.outputs[0].array->values<float>()[0];
      device_ns += r.run_ns;
      ++count;
      return absl::OkStatus();
    };
    for (size_t first = 0; first + kBatch <= training; first += kBatch) {
      std::vector<Arg> args(state.begin(), state.end());
      const Array batch = Rows(images, order, first, kBatch),
                  digits = Rows(labels, order, first, kBatch);
      args.insert(args.end(), {batch, digits, rate, 0.9});
      OPWIRE_ASSIGN_OR_RETURN(PendingRun step, train.Start(args, options));
      flying.push_back(std::move(step));
      if (flying.size() == 8) OPWIRE_RETURN_IF_ERROR(land());
      ++steps;
    }
    while (!flying.empty()) OPWIRE_RETURN_IF_ERROR(land());
    OPWIRE_ASSIGN_OR_RETURN(const double right, accuracy());
    fmt::print("\repoch {:>3}/{}  loss {:.4f}  held-out accuracy {:.4f} ", epoch, epochs,
               loss / static_cast<double>(count), right);
    std::fflush(stdout);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  fmt::print("\n\n{} steps in {:.2f} s, {:.1f} us a step on the device\n", steps, seconds,
             static_cast<double>(device_ns) / 1e3 / static_cast<double>(steps));

  OPWIRE_ASSIGN_OR_RETURN(const double right, accuracy());
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<Array> out,
                          predict.Call({test_images, state[0], state[1], state[2], state[3]}));
  fmt::print("test accuracy {:.4f} on {} images\n\n", right, held_out);
  std::map<int, StepCost> shortest;
  options.profile = true;
  for (int i = 0; i < 20; ++i) {
    std::vector<Arg> args(state.begin(), state.end());
    const Array batch = Rows(images, order, 0, kBatch), digits = Rows(labels, order, 0, kBatch);
    args.insert(args.end(), {batch, digits, 0.0, 0.0});
    OPWIRE_ASSIGN_OR_RETURN(const RunResult profiled, train.Run(args, options));
    for (const StepCost& step : profiled.profile) {
      StepCost& best = shortest.try_emplace(step.node, step).first->second;
      if (step.ns < best.ns) best = step;
    }
  }
  // Some that it read right, and some that it did not.
  std::vector<int64_t> shown = {0, 1, 2};
  for (size_t i = 3; i < held_out && shown.size() < 5; ++i) {
    if (out[1].values<int64_t>()[i] != test_labels.values<int32_t>()[i])
      shown.push_back(static_cast<int64_t>(i));
  }
  Draw(test_images, shown, out[1], test_labels);

  // What each op of a training step cost: the shortest of several steps, measured on the executor.
  std::map<std::string, std::pair<int, int64_t>> cost;
  for (const auto& [node, step] : shortest) {
    auto& [count, ns] = cost[step.label];
    ++count;
    ns += step.ns;
  }
  std::vector<std::pair<std::string, std::pair<int, int64_t>>> by_cost(cost.begin(), cost.end());
  std::sort(by_cost.begin(), by_cost.end(),
            [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
  fmt::print("\none training step, by op:\n  {:<36}{:>6}{:>12}\n", "op@variant", "nodes", "us");
  for (const auto& [label, c] : by_cost)
    fmt::print("  {:<36}{:>6}{:>12.2f}\n", label, c.first, static_cast<double>(c.second) / 1e3);
  if (!save.empty()) {
    std::map<std::string, Array> weights;
    for (size_t i = 0; i < shapes.size(); ++i) {
      OPWIRE_ASSIGN_OR_RETURN(weights[shapes[i].first], session.Fetch(state[i]));
    }
    std::ofstream file(save);
    file << WithConstants(predict_text, weights);
    if (!file.flush()) return Unavailable("{} cannot be written", save);
    fmt::print(
        "\nsaved as {}; try: opwire run {} --in images=examples/data/digits.npy --out "
        "digit=digits-read.npy\n",
        save, save);
  }
  return right >= 0.96 ? absl::OkStatus() : Internal("the accuracy is below 0.96");
}

}  // namespace

int main(int argc, char** argv) {
  int epochs = 30;
  std::string save, examples = "examples";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (flag == "--epochs" && value && std::atoi(value) > 0)
      epochs = std::atoi(value);
    else if (flag == "--save" && value)
      save = value;
    else if (flag == "--examples" && value)
      examples = value;
    else {
      fmt::print(
          stderr,
          "digits: expected [--epochs N] [--save FILE.opw] [--examples DIRECTORY], got '{}'\n",
          flag);
      return 2;
    }
  }
  const absl::Status status = Train(epochs, save, examples);
  if (status.ok()) return 0;
  fmt::print(stderr, "digits: {}\n", std::string(status.message()));
  return 1;
}
