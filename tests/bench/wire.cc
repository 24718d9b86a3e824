// Round iterations and throughput against bare ZeroMQ and a bare futex.
#include <fmt/format.h>
#include <unistd.h>
#include <zmq.h>

#include <cstring>
#include <memory>

#include "frontend/cpp/session_state.h"
#include "ir/text/text.h"
#include "tests/bench/bench.h"

namespace opwire::bench {
namespace {

// A DEALER against a ROUTER in another process that answers each message with one of a fixed size.
class Echo {
 public:
  Echo(const std::string& endpoint, size_t request, size_t reply)
      : reply_size_(reply), request_(request, 'x'), server_([=] {
          void* context = zmq_ctx_new();
          void* router = zmq_socket(context, ZMQ_ROUTER);
          zmq_bind(router, endpoint.c_str());
          std::string answer(reply, 'y');
          zmq_msg_t id, body;
          zmq_msg_init(&id);
          zmq_msg_init(&body);
          while (true) {
            zmq_msg_recv(&id, router, 0);
            zmq_msg_recv(&body, router, 0);
            zmq_send(router, zmq_msg_data(&id), zmq_msg_size(&id), ZMQ_SNDMORE);
            zmq_send(router, answer.data(), answer.size(), 0);
          }
        }) {
    context_ = zmq_ctx_new();
    dealer_ = zmq_socket(context_, ZMQ_DEALER);
    const int linger = 0, patience = 30'000;
    zmq_setsockopt(dealer_, ZMQ_LINGER, &linger, sizeof(linger));
    zmq_setsockopt(dealer_, ZMQ_RCVTIMEO, &patience, sizeof(patience));
    zmq_connect(dealer_, endpoint.c_str());
    Call();
  }
  ~Echo() {
    zmq_close(dealer_);
    zmq_ctx_term(context_);
  }
  void Send() { zmq_send(dealer_, request_.data(), request_.size(), 0); }
  void Receive() {
    char buffer[4096];
    if (zmq_recv(dealer_, buffer, sizeof(buffer), 0) != static_cast<int>(reply_size_))
      throw RowError("the echo gave no reply of the expected size");
  }
  void Call() {
    Send();
    Receive();
  }

 private:
  size_t reply_size_;
  std::string request_;
  Child server_;
  void* context_;
  void* dealer_;
};

struct Adder {
  Session session;
  Program program;
  Array x = Array::Random(DType::kF32, {16}, 1), y = Array::Random(DType::kF32, {16}, 2);
  RunOptions options;

  Adder(const Setup& setup, const std::string& executor, bool ring)
      : session(OpenOn(executor, ring)), program(Must(session.Load(kAdd))) {
    options.wants = {Want::kInline};
    for (int i = 0; i < setup.Times(200); ++i) Must(program.Run({x, y}, options).status());
  }
  // `measure` and the result of one more run, as ByReference gives it.
  Timed Runs(const Setup& setup, std::function<double()> measure) {
    return {
        std::move(measure),
        [this] {
          return std::vector<Array>{Must(program.Run({x, y}, options)).outputs.at(0).array.value()};
        },
        [&setup] {
          const Array a = Array::Random(DType::kF32, {16}, 1),
                      b = Array::Random(DType::kF32, {16}, 2);
          return ByReference(setup, Must(Parse(kAdd, "add")), {a, b});
        },
        0};
  }
  double P50(int calls, Nanos pause = 0) {
    std::vector<double> micros;
    for (int i = 0; i < calls; ++i) {
      if (pause) usleep(static_cast<useconds_t>(pause / kMicrosecond));
      const double begun = Seconds();
      Must(program.Run({x, y}, options).status());
      micros.push_back((Seconds() - begun) * 1e6);
    }
    return Percentile(micros, 0.5);
  }
  double RunsPerSecond(int runs, int in_flight) {
    std::vector<PendingRun> flying;
    const double begun = Seconds();
    for (int i = 0; i < runs + in_flight; ++i) {
      if (i >= in_flight) Must(flying[static_cast<size_t>(i % in_flight)].Wait().status());
      if (i >= runs) continue;
      PendingRun run = Must(program.Start({x, y}, options));
      if (i < in_flight)
        flying.push_back(std::move(run));
      else
        flying[static_cast<size_t>(i % in_flight)] = std::move(run);
    }
    return runs / (Seconds() - begun);
  }
};

double EchoP50(Echo& echo, int calls) {
  std::vector<double> micros;
  for (int i = 0; i < calls; ++i) {
    const double begun = Seconds();
    echo.Call();
    micros.push_back((Seconds() - begun) * 1e6);
  }
  return Percentile(micros, 0.5);
}

double EchoPerSecond(Echo& echo, int calls, int in_flight) {
  const double begun = Seconds();
  for (int i = 0; i < in_flight; ++i) echo.Send();
  for (int i = 0; i < calls; ++i) {
    echo.Receive();
    if (i + in_flight < calls) echo.Send();
  }
  return calls / (Seconds() - begun);
}

// The sizes of the run that Adder sends and of its reply.
std::pair<size_t, size_t> MessageSizes() {
  fb::RunT run;
  run.slot = 1;
  run.bindings = {fb::Binding(fb::BindingKind::Inline, 2, 1, 0, 0, 0, 64),
                  fb::Binding(fb::BindingKind::Inline, 2, 1, 0, 0, 64, 64)};
  run.results = {fb::ResultSlot(fb::ResultKind::Inline, 0, 0)};
  run.shapes = {16, 16};
  run.payload.resize(128);
  fb::RunReplyT reply;
  reply.results = {fb::ResultInfo(fb::ResultKind::Inline, 2, 1, 0, 0, 64)};
  reply.shapes = {16};
  reply.payload.resize(64);
  reply.queue_ns = reply.run_ns = 1;
  return {EncodeRequest(1, std::move(run)).size(), EncodeReply(1, std::move(reply)).size()};
}

}  // namespace

void WireRows(const Setup& setup, std::vector<Row>& rows) {
  const auto [request, reply] = MessageSizes();
  const int calls = setup.Scaled(2000, 5), runs = setup.Scaled(20'000, 100);
  Measure("ipc", {"roundtrip", "pipelined"}, rows, [&] {
    Adder ipc(setup, "bench", false);
    Echo echo(fmt::format("ipc://{}/echo", setup.directory), request, reply);
    rows.push_back(Compare(setup, "roundtrip", "us", "zmq dealer-router echo, ipc",
                           ipc.Runs(setup, [&] { return ipc.P50(calls); }),
                           [&] { return EchoP50(echo, calls); }));
    rows.back().target = 1.2;
    rows.push_back(Compare(setup, "pipelined", "runs/s", "zmq echo, 64 in flight",
                           ipc.Runs(setup, [&] { return ipc.RunsPerSecond(runs, 64); }),
                           [&] { return EchoPerSecond(echo, runs, 64); }));
    rows.back().target = 0.75;
    rows.back().higher_is_better = true;
  });
  Measure("tcp", {"roundtrip_tcp"}, rows, [&] {
    Adder tcp(setup, "bench-tcp", false);
    Echo echo("tcp://127.0.0.1:47113", request, reply);
    rows.push_back(Compare(setup, "roundtrip_tcp", "us", "zmq dealer-router echo, tcp",
                           tcp.Runs(setup, [&] { return tcp.P50(calls); }),
                           [&] { return EchoP50(echo, calls); }));
    rows.back().target = 1.2;
  });
  Measure("ring", {"roundtrip_ring", "roundtrip_ring_parked", "pipelined_ring"}, rows, [&] {
    Adder ring(setup, "bench", true);
    rows.push_back(Compare(setup, "roundtrip_ring", "us", "",
                           ring.Runs(setup, [&] { return ring.P50(calls); }), nullptr));
    rows.back().target = 5;
    rows.back().target_is_ratio = false;
    const int parked = setup.Scaled(300, 5);
    rows.push_back(Compare(setup, "roundtrip_ring_parked", "us", "futex ping-pong, parked",
                           ring.Runs(setup, [&] { return ring.P50(parked, kMillisecond); }),
                           [&] { return FutexWakeMicros(parked); }));
    rows.back().target = 1.3;
    rows.push_back(Compare(setup, "pipelined_ring", "runs/s", "",
                           ring.Runs(setup, [&] { return ring.RunsPerSecond(runs, 64); }),
                           nullptr));
    rows.back().higher_is_better = true;
    rows.back().target_is_ratio = false;
  });
}

}  // namespace opwire::bench
