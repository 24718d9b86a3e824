// Trains the network of 01_digits by one request: the executor runs the loop on its own, and sends
// the loss of each step meanwhile.
//
//   digits_loop [--epochs N] [--batch N] [--examples DIRECTORY]
//
// `loss.opw` is what a person wrote of it, training_loop.h makes the program.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "examples/02_loop/training_loop.h"
#include "examples/data/digits.h"
#include "frontend/cpp/client.h"
#include "ir/text/text.h"

namespace {

using namespace opwire;
using namespace opwire::client;
using namespace opwire::examples;

constexpr uint64_t kSeed = 7;
constexpr double kRate = 0.1, kLeast = 0.1;  // kLeast: of the rate, at the end

Status Train(int epochs, int64_t batch, const std::string& examples) {
  OPWIRE_ASSIGN_OR_RETURN(const Array images, Array::ReadNpy(examples + "/data/digits.npy"));
  OPWIRE_ASSIGN_OR_RETURN(const Array labels, Array::ReadNpy(examples + "/data/labels.npy"));
  OPWIRE_ASSIGN_OR_RETURN(const std::string loss_text, ReadExample(examples + "/02_loop/loss.opw"));
  OPWIRE_ASSIGN_OR_RETURN(const std::string predict_text,
                          ReadExample(examples + "/01_digits/predict.opw"));

  std::mt19937_64 random(kSeed);
  std::vector<int64_t> shuffled(static_cast<size_t>(images.shape()[0]));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  const size_t held_out = shuffled.size() / 5, training = shuffled.size() - held_out;
  const Array test_images = Rows(images, shuffled, training, held_out),
              test_labels = Rows(labels, shuffled, training, held_out);
  shuffled.resize(training);

  // The batches of all epochs, one after the other.
  const int64_t steps = static_cast<int64_t>(training) / batch * epochs;
  Array order(DType::kI64, {steps * batch});
  for (int64_t at = 0; at < order.elements();) {
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    for (size_t i = 0; i < training / static_cast<size_t>(batch) * static_cast<size_t>(batch); ++i)
      order.values<int64_t>()[static_cast<size_t>(at++)] = shuffled[i];
  }

  OPWIRE_ASSIGN_OR_RETURN(Client client,
                          Client::Connect({.registries = {}, .name = "digits_loop"}));
  OPWIRE_ASSIGN_OR_RETURN(Session session, client.Open());
  OPWIRE_ASSIGN_OR_RETURN(const Module loss, Parse(loss_text, "loss.opw"));
  OPWIRE_ASSIGN_OR_RETURN(const Module loop,
                          TrainingLoop(loss, images.shape()[0], order.elements(), batch));
  OPWIRE_ASSIGN_OR_RETURN(Program train, session.Load(loop));
  OPWIRE_ASSIGN_OR_RETURN(Program predict, session.Load(predict_text, "predict.opw"));

  std::vector<Tensor> state;
  for (const bool velocity : {false, true}) {
    for (const auto& [name, shape] : DigitWeights()) {
      OPWIRE_ASSIGN_OR_RETURN(
          Tensor t,
          session.Put((velocity ? Array(DType::kF32, shape) : InitialWeight(shape, random)).view(),
                      velocity ? "velocity of " + name : name));
      state.push_back(std::move(t));
    }
  }
  std::vector<Arg> args = {steps};
  args.insert(args.end(), state.begin(), state.end());
  for (const Array* a : {&images, &labels, static_cast<const Array*>(&order)}) {
    OPWIRE_ASSIGN_OR_RETURN(Tensor t, session.Put(a->view()));
    args.emplace_back(std::move(t));
  }
  args.insert(args.end(), {kRate, kRate * (1 - kLeast) / static_cast<double>(steps)});

  fmt::print("one request: {} steps on executor {}, batches of {}\n\n", steps, session.executor(),
             batch);
  int64_t step = 0;
  double mean = 0;
  RunOptions options;
  options.on_emit = [&](std::string_view, const Array& lost) {
    ++step;
    mean += (lost.values<float>()[0] - mean) / static_cast<double>(std::min<int64_t>(step, 50));
    if (step % 20 != 0 && step != steps) return;
    fmt::print("\rstep {:>6}/{}  loss {:.4f} ", step, steps, mean);
    std::fflush(stdout);
  };
  OPWIRE_ASSIGN_OR_RETURN(const RunResult run, train.Run(args, options));
  fmt::print("\n\n{} steps in {:.2f} s, {:.1f} us a step\n", step,
             static_cast<double>(run.run_ns) / 1e9,
             static_cast<double>(run.run_ns) / 1e3 / static_cast<double>(steps));

  OPWIRE_ASSIGN_OR_RETURN(const std::vector<Array> out,
                          predict.Call({test_images, state[0], state[1], state[2], state[3]}));
  int64_t right = 0;
  for (size_t i = 0; i < held_out; ++i)
    right += out[1].values<int64_t>()[i] == test_labels.values<int32_t>()[i];
  const double accuracy = static_cast<double>(right) / static_cast<double>(held_out);
  fmt::print("test accuracy {:.4f} on {} images\n", accuracy, held_out);
  return accuracy >= 0.96 ? absl::OkStatus() : Internal("the accuracy is below 0.96");
}

}  // namespace

int main(int argc, char** argv) {
  int epochs = 30;
  int64_t batch = 32;
  std::string examples = "examples";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (flag == "--epochs" && value && std::atoi(value) > 0)
      epochs = std::atoi(value);
    else if (flag == "--batch" && value && std::atoi(value) > 0 && std::atoi(value) <= 1024)
      batch = std::atoi(value);
    else if (flag == "--examples" && value)
      examples = value;
    else {
      fmt::print(stderr,
                 "digits_loop: expected [--epochs N] [--batch N, up to 1024] [--examples "
                 "DIRECTORY], got '{}'\n",
                 flag);
      return 2;
    }
  }
  const Status status = Train(epochs, batch, examples);
  if (status.ok()) return 0;
  fmt::print(stderr, "digits_loop: {}\n", MessageOf(status));
  return 1;
}
