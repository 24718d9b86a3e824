// Any bytes as a request and as a reply: they are decoded or refused, and a decoded message can be
// read as a whole.
#include "ir/wire/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  AlignedBytes memory;
  if (auto request = DecodeRequest({data, size}, memory); request.ok()) {
    fb::RequestT whole;
    (*request)->UnPackTo(&whole);
    EncodeRequest(whole);
  }
  if (auto reply = DecodeReply({data, size}, memory); reply.ok()) {
    const Status status = StatusOf(**reply);
    SiteOf(status);
    fb::ReplyT whole;
    (*reply)->UnPackTo(&whole);
    EncodeReply(whole);
  }
  return 0;
}
