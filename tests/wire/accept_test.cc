// A server that accepts more connections than it has descriptors.
#include "ir/wire/accept.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ir/base/owned_fd.h"
#include "ir/wire/zmq_channel.h"
#include "tests/folder.h"

namespace opwire {
namespace {

constexpr int kBound = 100, kLimit = 108, kClients = 300;

// Accepts what comes and looks at nothing until a byte says so; then serves until a message comes.
[[noreturn]] void Serve(const std::string& endpoint, int ready, int go) {
  const rlimit limit = {kLimit, kLimit};
  ZmqContext context;
  auto router = Router::Bind(context, endpoint);
  BoundAcceptedDescriptors(kBound);
  char byte = 0;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || !router.ok() || write(ready, "x", 1) != 1 ||
      read(go, &byte, 1) != 1)
    _exit(2);
  const int free = open("/dev/null", O_RDONLY | O_CLOEXEC);  // is left for files
  Incoming m{};
  std::vector<PeerId> gone;
  const Nanos until = MonotonicNow() + 20 * kSecond;
  while (!(*router)->Receive(m) && MonotonicNow() < until) {
    (*router)->TakeGone(gone);
    PollReadable({}, kMillisecond);
  }
  _exit(free < 0 ? 3 : m.head.size() == 1 ? 0 : 4);
}

TEST(BoundAcceptedDescriptors, ConnectionsLeaveDescriptorsAndTheServerLives) {
  const Folder folder;
  const std::string path = folder / "run", endpoint = "ipc://" + path;
  int ready[2], go[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) Serve(endpoint, ready[1], go[0]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  std::vector<OwnedFd> held;
  for (int i = 0; i < kClients; ++i) {
    OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) break;
    held.push_back(std::move(fd));
  }
  EXPECT_EQ(held.size(), kClients) << "all were taken or turned away";
  held.clear();
  ASSERT_EQ(write(go[1], "x", 1), 1);
  ZmqContext context;
  auto dealer = Dealer::Connect(context, endpoint, {});
  ASSERT_TRUE(dealer.ok()) << dealer.status();
  const uint8_t message[] = {1};
  EXPECT_TRUE((*dealer)->Send(message).ok());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace opwire
