// A registry state with short ways to speak to it, on a clock that the test moves.
#ifndef OPWIRE_TESTS_REGISTRY_FIXTURE_H_
#define OPWIRE_TESTS_REGISTRY_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/dtype.h"
#include "registry/state/state.h"

namespace opwire {

// Of the name `id`, by which a registry knows its executors.
inline std::vector<uint8_t> ClaimOf(const std::string& id) {
  std::vector<uint8_t> claim(16);
  std::copy_n(id.begin(), std::min(id.size(), claim.size()), claim.begin());
  return claim;
}

inline fb::ExecutorInfoT MakeInfo(const std::string& id, uint64_t incarnation = 1) {
  fb::ExecutorInfoT info;
  info.id = id;
  info.incarnation = incarnation;
  info.control_endpoint = "ipc:///run/" + id + ".ctl";
  info.device = "cpu";
  info.free_memory = 1000;
  return info;
}

inline void AddOp(fb::ExecutorInfoT& info, const std::string& name, DTypeSet dtypes) {
  auto op = std::make_unique<fb::OpEntryT>();
  op->name = name;
  for (int t = 1; t < kDTypeCount; ++t)
    op->dtypes |= dtypes.Has(static_cast<DType>(t)) ? 1u << t : 0;
  info.ops.push_back(std::move(op));
}

// A message that came out, unpacked.
struct Got {
  PeerId peer;
  fb::ReplyT reply;
  Status status;
};

class RegistryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kEpoch = 77;
  static constexpr Nanos kStart = 1000 * kSecond;

  RegistryTest() { Reset({}); }
  void Reset(const RegistryOptions& options) {
    state_ = std::make_unique<RegistryState>(kEpoch, now_, options);
  }

  static std::vector<Got> Unpack(const std::vector<Outgoing>& out) {
    std::vector<Got> got;
    for (const Outgoing& o : out) {
      AlignedBytes memory;
      auto reply = DecodeReply(AsBytes(o.bytes), memory);
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (!reply.ok()) continue;
      Got g{o.peer, {}, StatusOf(**reply)};
      (*reply)->UnPackTo(&g.reply);
      got.push_back(std::move(g));
    }
    return got;
  }
  template <typename BodyT>
  std::vector<Got> Say(PeerId peer, BodyT body, uint64_t seq = 1) {
    return Unpack(state_->OnMessage(now_, peer, AsBytes(EncodeRequest(seq, std::move(body)))));
  }
  std::vector<Got> Tick(Nanos later) {
    now_ += later;
    return Unpack(state_->OnTick(now_));
  }

  Got Register(PeerId peer, fb::ExecutorInfoT info) {
    const std::vector<uint8_t> claim = ClaimOf(info.id);
    return Register(peer, std::move(info), claim);
  }
  Got Register(PeerId peer, fb::ExecutorInfoT info, const std::vector<uint8_t>& claim) {
    fb::RegisterT body;
    body.claim = claim;
    body.info = std::make_unique<fb::ExecutorInfoT>(std::move(info));
    return AnswerTo(peer, Say(peer, std::move(body)));
  }
  Got Beat(PeerId peer, const std::string& id, uint64_t incarnation, int64_t free_memory = -1,
           bool draining = false) {
    fb::HeartbeatT body;
    body.id = id;
    body.incarnation = incarnation;
    body.draining = draining;
    if (free_memory >= 0) {
      body.load = std::make_unique<fb::LoadInfoT>();
      body.load->free_memory = free_memory;
    }
    return AnswerTo(peer, Say(peer, std::move(body)));
  }
  fb::QueryReplyT Ask(fb::QueryT query) {
    Got g = AnswerTo(9, Say(9, std::move(query)));
    const fb::QueryReplyT* body = g.reply.body.AsQueryReply();
    EXPECT_NE(body, nullptr) << g.status;
    return body ? *body : fb::QueryReplyT();
  }
  std::vector<std::string> Ids(fb::QueryT query = {}) {
    std::vector<std::string> ids;
    for (const auto& e : Ask(std::move(query)).executors) ids.push_back(e->id);
    return ids;
  }
  // The answer to a peer's own request; what watchers are told stays in `told_`.
  Got AnswerTo(PeerId peer, std::vector<Got> all) {
    Got answer{};
    int answers = 0;
    for (Got& g : all) {
      if (g.peer == peer && g.reply.body.type != fb::ReplyBody::Change) {
        answer = std::move(g);
        ++answers;
      } else {
        told_.push_back(std::move(g));
      }
    }
    EXPECT_EQ(answers, 1);
    return answer;
  }

  Nanos now_ = kStart;
  std::unique_ptr<RegistryState> state_;
  std::vector<Got> told_;
};

}  // namespace opwire

#endif  // OPWIRE_TESTS_REGISTRY_FIXTURE_H_
