// The agent from its entry to the closed file, called as an attacher makes a target call it.
// Usage: agent_test LIBRARY MOCK MOCK_CUDA
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <thread>

#include "agent/control.h"
#include "capture_file.h"
#include "check.h"
#include "core/clock.h"
#include "emit.h"
#include "mock_cupti.h"

namespace {

using namespace ai_prof;
using namespace ai_prof::test;
using namespace ai_prof::agent;

int (*g_attach)(int, int) = nullptr;
MockCupti* g_mock = nullptr;
decltype(&::mock_emit) g_emit = nullptr;
decltype(&::mock_now) g_now = nullptr;
// While these files are there.
std::filesystem::path g_cuda_is_down;
std::filesystem::path g_no_context;

// What an attacher does, in this process.
class Attacher {
 public:
  explicit Attacher(const std::string& settings) {
    descriptor_ = memfd_create("control", MFD_CLOEXEC);
    CHECK(ftruncate(descriptor_, sizeof(Control)) == 0);
    void* page = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    control = new (page) Control{};
    std::memcpy(control->magic, kControlMagic, sizeof kControlMagic);
    std::memcpy(control->settings, settings.data(), settings.size());
    control->settings_bytes = static_cast<std::uint32_t>(settings.size());
    held_ = open(("/proc/self/fd/" + std::to_string(descriptor_)).c_str(), O_RDWR | O_CLOEXEC);
    CHECK(flock(held_, LOCK_EX) == 0);
  }

  // `output` is passed on unless it is -1.
  int enter(int output) const {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    if (output >= 0) send(ends[0], output);
    close(ends[0]);
    return g_attach(descriptor_, ends[1]);
  }

  void go() const {
    control->go_at_ns = monotonic_ns();
    control->request = kGo;
  }

  // As its end does, whatever that is.
  void let_go() const { close(held_); }

  bool reaches(State state) const {
    for (int i = 0; i < 2000 && control->state != state; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return control->state == state;
  }

  Control* control;

 private:
  static void send(int socket, int descriptor) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    CHECK(sendmsg(socket, &message, 0) == 1);
    close(descriptor);
  }

  int descriptor_;
  int held_;
};

std::string settings(const std::string& more = "") {
  using namespace std::string_literals;
  return "AI_PROF_ENABLE=1\0AI_PROF_CAPTURE_ID=x\0AI_PROF_LEVEL=api\0"s + more;
}

// And its launch, and a call that level `api` leaves out.
void emit_kernel() {
  const auto launch =
      call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, g_now() - 3000, 1);
  const auto other =
      call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, g_now(), 2);
  const auto record = kernel("k", g_now(), 1);
  g_emit(&launch, sizeof launch);
  g_emit(&other, sizeof other);
  g_emit(&record, sizeof record);
}

void rounds_record_and_leave_cupti_free(const Folder& folder) {
  for (int round = 0; round < 3; ++round) {
    const std::string path = folder.path / ("round-" + std::to_string(round));
    const Attacher attacher(settings());
    CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
    CHECK(attacher.reaches(kReady));
    CHECK(!g_mock->subscribed);
    CHECK(Attacher(settings()).enter(-1) == 1);  // one at a time
    attacher.go();
    CHECK(attacher.reaches(kRecording));
    emit_kernel();
    attacher.control->request = kStop;
    CHECK(attacher.reaches(kEnded));
    CHECK(!g_mock->subscribed);
    CHECK(attacher.control->pid == getpid());
    CHECK(std::getenv("NVTX_INJECTION64_PATH") == nullptr);  // its threads may be reading the environment
    const CaptureFile file(path);
    CHECK(file.records<format::KernelRecord>(format::kKernel).size() == 1);
    const auto calls = file.records<format::CallRecord>(format::kCall);
    CHECK(calls.size() == 1 && calls.front().kind == format::kCallLaunch);
    CHECK(file.records<format::EndRecord>(format::kEnd).at(0).reason == format::kEndStop);
  }
}

void an_attacher_that_goes_before_its_go_is_noticed(const Folder& folder) {
  const std::string path = folder.path / "gone";
  const Attacher attacher(settings());
  CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
  CHECK(attacher.reaches(kReady));
  attacher.let_go();
  CHECK(attacher.reaches(kNoCuda));
}

void no_capture_without_a_deadline_outlives_its_attacher(const Folder& folder) {
  const std::string path = folder.path / "alone";
  const Attacher attacher(settings());
  CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
  attacher.go();
  CHECK(attacher.reaches(kRecording));
  emit_kernel();
  attacher.let_go();
  CHECK(attacher.reaches(kEnded));
  CHECK(CaptureFile(path).records<format::KernelRecord>(format::kKernel).size() == 1);
}

void the_window_ends_by_itself(const Folder& folder) {
  using namespace std::string_literals;
  const std::string path = folder.path / "window";
  const Attacher attacher(settings("AI_PROF_DURATION=0.3\0"s));
  CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
  attacher.go();
  attacher.let_go();
  CHECK(attacher.reaches(kEnded));
  CHECK(CaptureFile(path).records<format::EndRecord>(format::kEnd).at(0).reason == format::kEndWindow);
}

void without_cuda_nothing_is_written(const Folder& folder) {
  using namespace std::string_literals;
  const std::string path = folder.path / "nothing";
  std::ofstream(g_cuda_is_down).close();
  const Attacher attacher(settings("AI_PROF_DURATION=0.2\0"s));
  CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
  attacher.go();
  CHECK(attacher.reaches(kNoCuda));
  std::filesystem::remove(g_cuda_is_down);
  CHECK(std::filesystem::file_size(path) == 0);
}

void cuda_may_come_up_while_it_is_waited_for(const Folder& folder) {
  const std::string path = folder.path / "late";
  std::ofstream(g_cuda_is_down).close();
  const Attacher attacher(settings());
  CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
  attacher.go();
  CHECK(attacher.reaches(kAwaitsCuda));
  CHECK(!g_mock->subscribed);
  std::filesystem::remove(g_cuda_is_down);
  CHECK(attacher.reaches(kRecording));
  emit_kernel();
  attacher.control->request = kStop;
  CHECK(attacher.reaches(kEnded));
  CHECK(CaptureFile(path).records<format::KernelRecord>(format::kKernel).size() == 1);
}

bool comes(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

// It has initialized CUDA, and has no context yet: to leave CUPTI now would spoil it for the program.
void a_program_without_a_context_is_left_once_it_works(const Folder& folder) {
  using namespace std::string_literals;
  std::ofstream(g_no_context).close();
  g_mock->context_made = false;
  g_mock->left_too_early = 0;
  for (const char* name : {"idle-0", "idle-1"}) {  // the second takes CUPTI over from the first
    const std::string path = folder.path / name;
    const Attacher attacher(settings("AI_PROF_DURATION=0.2\0AI_PROF_LEVEL=kernel\0"s));
    CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
    attacher.go();
    CHECK(attacher.reaches(kEnded));
    CHECK(CaptureFile(path).records<format::EndRecord>(format::kEnd).at(0).reason == format::kEndWindow);
    CHECK(g_mock->subscribed);
  }
  const std::string path = folder.path / "works";
  const Attacher attacher(settings());
  CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
  attacher.go();
  CHECK(attacher.reaches(kRecording));
  emit_kernel();
  std::filesystem::remove(g_no_context);
  attacher.control->request = kStop;
  CHECK(attacher.reaches(kEnded));
  const CaptureFile file(path);
  CHECK(file.records<format::KernelRecord>(format::kKernel).size() == 1);
  CHECK(file.records<format::CallRecord>(format::kCall).size() == 1);
  CHECK(comes([] { return !g_mock->subscribed; }));
  CHECK(g_mock->left_too_early == 0);
  CHECK(g_mock->left_hooked == 0);
}

// A job that hangs in a kernel: the very one that is attached to.
void a_stuck_flush_holds_no_attach(const Folder& folder) {
  using namespace std::string_literals;
  for (const bool stopped : {true, false}) {
    const std::string path = folder.path / ("stuck-"s + (stopped ? "stop" : "window"));
    const Attacher attacher(stopped ? settings() : settings("AI_PROF_DURATION=1\0"s));
    CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
    attacher.go();
    CHECK(attacher.reaches(kRecording));
    g_mock->called_while_stuck = 0;
    g_mock->flush_stuck = true;
    emit_kernel();
    if (stopped) attacher.control->request = kStop;
    CHECK(attacher.reaches(kEnded));
    CHECK(std::strstr(attacher.control->message, "CUPTI's flush has not returned for") != nullptr);
    CHECK(CaptureFile(path).records<format::EndRecord>(format::kEnd).at(0).reason == format::kEndError);

    const std::string other = path + "-again";
    const Attacher again(settings());
    CHECK(again.enter(open(other.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
    again.go();
    CHECK(again.reaches(kFailed));
    CHECK(std::strstr(again.control->message, "has not let go of CUPTI") != nullptr);
    CHECK(std::filesystem::file_size(other) == 0);
    CHECK(g_mock->called_while_stuck == 0);
    g_mock->flush_stuck = false;
    CHECK(comes([] { return !g_mock->subscribed; }));
  }
  rounds_record_and_leave_cupti_free(Folder());
}

void bad_input_is_told_to_the_attacher() {
  using namespace std::string_literals;
  const Attacher wrong("AI_PROF_ENABLE=1\0AI_PROF_LEVEL=most\0"s);
  CHECK(wrong.enter(open("/dev/null", O_RDWR | O_CLOEXEC)) == 0);
  CHECK(wrong.reaches(kFailed));
  CHECK(std::strstr(wrong.control->message, "AI_PROF_LEVEL=most") != nullptr);
  const Attacher empty(settings());
  CHECK(empty.enter(-1) == 0);
  CHECK(empty.reaches(kFailed));
  CHECK(std::strstr(empty.control->message, "no file") != nullptr);
  Attacher other(settings());
  other.control->magic[7] = '9';  // another version's
  CHECK(other.enter(-1) == 1);
}

// A program that has closed its standard input: the attacher's page got that number.
void standard_streams_are_left_to_the_program(const Folder& folder) {
  close(STDIN_FILENO);
  const Attacher attacher(settings());
  const std::string path = folder.path / "streams";
  CHECK(attacher.enter(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
  CHECK(attacher.reaches(kReady));
  CHECK(open("/dev/null", O_RDONLY) == STDIN_FILENO);
  attacher.control->request = kStop;
  CHECK(attacher.reaches(kNoCuda));
  CHECK(fcntl(STDIN_FILENO, F_GETFD) == 0);  // not closed with the page
}

// As an attacher does with a process that was started in standby, twice.
void standby_is_woken(const Folder& folder, int (*initialize)()) {
  CHECK(initialize() == 1);
  Control* control = nullptr;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = std::filesystem::read_symlink(entry.path());
    if (!name.starts_with("/memfd:ai-prof-standby")) continue;
    const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    void* page = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    control = static_cast<Control*>(page);
    CHECK(flock(file, LOCK_EX) == 0);
    break;
  }
  CHECK(control != nullptr && control->pid == getpid() && control->state == kPrepared);
  if (control == nullptr) return;
  for (int round = 0; round < 2; ++round) {
    const std::filesystem::path output = folder.path / ("woken-" + std::to_string(round));
    const std::string wish = settings("AI_PROF_OUTPUT=" + output.string() + '\0');
    std::memcpy(control->settings, wish.data(), wish.size());
    control->settings_bytes = static_cast<std::uint32_t>(wish.size());
    control->state = kPrepared;
    control->request = kWake;
    const auto reaches = [&](State state) {
      for (int i = 0; i < 2000 && control->state != state; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      return control->state == state;
    };
    CHECK(reaches(kReady));
    CHECK(Attacher(settings()).enter(-1) == 1);  // one at a time
    control->go_at_ns = monotonic_ns();
    control->request = kGo;
    CHECK(reaches(kRecording));
    emit_kernel();
    control->request = kStop;
    CHECK(reaches(kEnded));
    const CaptureFile file(std::filesystem::directory_iterator(output)->path());
    CHECK(file.records<format::KernelRecord>(format::kKernel).size() == 1);
    CHECK(file.records<format::CallRecord>(format::kCall).size() == 1);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const Folder folder;
  unsetenv("NVTX_INJECTION64_PATH");
  setenv("AI_PROF_OUTPUT", folder.path.c_str(), 1);
  g_cuda_is_down = folder.path / "cuda-is-down";
  g_no_context = folder.path / "no-context";
  setenv("MOCK_CUDA_IS_DOWN_WHILE", g_cuda_is_down.c_str(), 1);
  setenv("MOCK_CUDA_HAS_NO_CONTEXT_WHILE", g_no_context.c_str(), 1);
  dlopen(words[3], RTLD_NOW);
  // By the name under which the library looks for a libcupti that the program has.
  const std::filesystem::path cupti = folder.path / "libcupti.so.13";
  std::filesystem::copy_file(words[2], cupti);
  void* mock = dlopen(cupti.c_str(), RTLD_NOW);
  void* library = dlopen(words[1], RTLD_NOW);
  if (mock == nullptr || library == nullptr) return 3;
  g_attach = reinterpret_cast<decltype(g_attach)>(dlsym(library, "ai_prof_attach"));
  g_mock = reinterpret_cast<decltype(&::mock_cupti)>(dlsym(mock, "mock_cupti"))();
  g_emit = reinterpret_cast<decltype(g_emit)>(dlsym(mock, "mock_emit"));
  g_now = reinterpret_cast<decltype(g_now)>(dlsym(mock, "mock_now"));
  g_mock->context_made = true;
  rounds_record_and_leave_cupti_free(folder);
  an_attacher_that_goes_before_its_go_is_noticed(folder);
  no_capture_without_a_deadline_outlives_its_attacher(folder);
  the_window_ends_by_itself(folder);
  without_cuda_nothing_is_written(folder);
  cuda_may_come_up_while_it_is_waited_for(folder);
  a_program_without_a_context_is_left_once_it_works(folder);
  a_stuck_flush_holds_no_attach(folder);
  bad_input_is_told_to_the_attacher();
  standard_streams_are_left_to_the_program(folder);
  setenv("AI_PROF_ENABLE", "standby", 1);
  standby_is_woken(folder, reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")));
  CHECK(g_mock->finalized == 0);
  return verdict();
}
