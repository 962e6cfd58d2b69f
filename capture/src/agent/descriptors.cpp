#include "agent/descriptors.h"

#include <sys/socket.h>

#include <cstring>

#include "core/standard_streams.h"

namespace ai_prof::agent {

Passed receive(int socket) noexcept {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  Passed passed;
  if (recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) return passed;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return passed;
  int found[2] = {-1, -1};
  const std::size_t bytes = header->cmsg_len - CMSG_LEN(0);
  std::memcpy(found, CMSG_DATA(header), bytes < sizeof found ? bytes : sizeof found);
  passed.output = off_standard_streams(found[0]);
  passed.cupti = off_standard_streams(found[1]);
  return passed;
}

}  // namespace ai_prof::agent
