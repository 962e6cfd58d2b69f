// What a launch costs the host: empty kernels with a synchronize every 500, one by one and as CUDA graphs
// of 20. Usage: launch_loop LAUNCHES [SECONDS]: the seconds of launches that go before, so that a window may
// end in them. Prints {"launch_us": N, "graph_us": N}: per kernel launched by itself, per graph launched.
// Through the driver alone, opened at run time: needs no CUDA toolkit to build or to run.
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEvery = 500;
constexpr int kInGraph = 20;
constexpr char kPtx[] =
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry nothing() { ret; }\n";

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "launch_loop: %s failed with %d\n", what, static_cast<int>(result));
  std::exit(1);
}

template <class Function>
Function* find(const char* name) {
  static void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void* found = driver != nullptr ? dlsym(driver, name) : nullptr;
  if (found == nullptr) {
    std::fprintf(stderr, "launch_loop: %s\n", dlerror());
    std::exit(3);
  }
  return reinterpret_cast<Function*>(found);
}

#define DRIVER(name, exported) decltype(&::name) name##_ = find<decltype(::name)>(exported)

struct Driver {
  DRIVER(cuInit, "cuInit");
  DRIVER(cuDeviceGet, "cuDeviceGet");
  DRIVER(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent");
  DRIVER(cuModuleLoadData, "cuModuleLoadData");
  DRIVER(cuModuleGetFunction, "cuModuleGetFunction");
  DRIVER(cuStreamCreate, "cuStreamCreate");
  DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  DRIVER(cuLaunchKernel, "cuLaunchKernel");
  DRIVER(cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  DRIVER(cuStreamEndCapture, "cuStreamEndCapture");
  DRIVER(cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  DRIVER(cuGraphLaunch, "cuGraphLaunch");
};

class Loop {
 public:
  Loop() {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    check(cuda_.cuInit_(0), "cuInit");
    check(cuda_.cuDeviceGet_(&device, 0), "cuDeviceGet");
    check(cuda_.cuDevicePrimaryCtxRetain_(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuda_.cuCtxSetCurrent_(context), "cuCtxSetCurrent");
    check(cuda_.cuModuleLoadData_(&module, kPtx), "cuModuleLoadData");
    check(cuda_.cuModuleGetFunction_(&kernel_, module, "nothing"), "cuModuleGetFunction");
    check(cuda_.cuStreamCreate_(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuda_.cuStreamBeginCapture_(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    for (int i = 0; i < kInGraph; ++i) launch();
    CUgraph graph = nullptr;
    check(cuda_.cuStreamEndCapture_(stream_, &graph), "cuStreamEndCapture");
    check(cuda_.cuGraphInstantiate_(&graph_, graph, 0), "cuGraphInstantiate");
  }

  void launches(int count) {
    for (int i = 1; i <= count; ++i) {
      launch();
      if (i % kEvery == 0) synchronize();
    }
    synchronize();
  }
  void graphs(int count) {
    for (int i = 1; i <= count; ++i) {
      check(cuda_.cuGraphLaunch_(graph_, stream_), "cuGraphLaunch");
      if (i % (kEvery / kInGraph) == 0) synchronize();
    }
    synchronize();
  }

 private:
  void launch() {
    check(cuda_.cuLaunchKernel_(kernel_, 1, 1, 1, 32, 1, 1, 0, stream_, nullptr, nullptr), "cuLaunchKernel");
  }
  void synchronize() { check(cuda_.cuStreamSynchronize_(stream_), "cuStreamSynchronize"); }

  const Driver cuda_;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  CUgraphExec graph_ = nullptr;
};

template <class Work>
double us_each(int count, Work&& work) {
  const Clock::time_point start = Clock::now();
  work(count);
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / count;
}

}  // namespace

int main(int words, char** word) {
  const int count = words > 1 ? std::atoi(word[1]) : 0;
  const double before = words > 2 ? std::atof(word[2]) : 0;
  if (count < kEvery) {
    std::fprintf(stderr, "usage: launch_loop LAUNCHES [SECONDS], %d launches or more\n", kEvery);
    return 2;
  }
  Loop loop;
  const Clock::time_point start = Clock::now();
  do {
    loop.launches(4 * kEvery);
    loop.graphs(4 * kEvery / kInGraph);
  } while (Clock::now() - start < std::chrono::duration<double>(before));
  const double launch = us_each(count, [&](int n) { loop.launches(n); });
  const double graph = us_each(count / kInGraph, [&](int n) { loop.graphs(n); });
  std::printf("{\"launch_us\": %.4f, \"graph_us\": %.4f}\n", launch, graph);
  return 0;
}
