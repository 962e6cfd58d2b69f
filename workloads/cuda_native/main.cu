// Blurs images: each is copied in from pinned memory beside the work on the one before, and a value of it is
// read back. Arguments: iterations, the fault or "none", its strength. Its last line is JSON, as of the
// others.

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSide = 2048;
constexpr int kPixels = kSide * kSide;
constexpr int kPasses = 16;
constexpr int kBands = 8;
constexpr int kThreads = 256;
constexpr auto kStall = std::chrono::milliseconds(5);

void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
  std::exit(1);
}

struct Options {
  int iterations;
  std::string fault;
  double strength;

  double dose(const char* name) const { return fault == name ? strength : 0.0; }
};

// Blurs `rows` rows from `first` on, along rows (`step` 1) or along columns (`step` kSide).
__global__ void blur(const float* in, float* out, int first, int rows, int step) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * kSide) return;
  const int at = first * kSide + i;
  float sum = 0.0f;
  for (int k = -4; k <= 4; ++k) sum += in[(at + k * step + kPixels) % kPixels];
  out[at] = sum / 9.0f;
}

__global__ void contrast(float* image) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kPixels) image[i] = tanhf(1.5f * image[i]);
}

class Blur {
 public:
  explicit Blur(const Options& options)
      : options_(options),
        passes_(static_cast<int>(std::lround(kPasses * (1 + options.dose("slow"))))),
        bands_(std::clamp(static_cast<int>(std::lround(kBands * options.dose("tiny"))), 1, kSide)) {
    check(cudaStreamCreateWithFlags(&work_, cudaStreamNonBlocking));
    check(cudaStreamCreateWithFlags(&load_, cudaStreamNonBlocking));
    for (int i = 0; i < 2; ++i) {
      check(cudaMallocHost(&host_[i], kPixels * sizeof(float)));
      check(cudaMalloc(&loaded_[i], kPixels * sizeof(float)));
      check(cudaEventCreateWithFlags(&ready_[i], cudaEventDisableTiming));
      check(cudaEventCreateWithFlags(&free_[i], cudaEventDisableTiming));
      unsigned state = 20240607u + i;
      for (int p = 0; p < kPixels; ++p) {
        state = state * 1664525u + 1013904223u;
        host_[i][p] = static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
      }
    }
    check(cudaMalloc(&image_, kPixels * sizeof(float)));
    check(cudaMalloc(&other_, kPixels * sizeof(float)));
    if (!eager()) capture();
    fetch(0);
  }

  // Works on image `i`, lets the next one be copied meanwhile; one pixel of the result.
  float run(int i) {
    const int place = i % 2;
    check(cudaStreamWaitEvent(work_, ready_[place]));
    check(cudaMemcpyAsync(image_, loaded_[place], kPixels * sizeof(float), cudaMemcpyDeviceToDevice, work_));
    check(cudaEventRecord(free_[place], work_));
    fetch(i + 1);
    if (eager()) {
      passes();
    } else {
      check(cudaGraphLaunch(graph_, work_));
    }
    launches_ += perImage_;
    float value = 0.0f;
    check(cudaMemcpyAsync(&value, image_ + kPixels / 2, sizeof(float), cudaMemcpyDeviceToHost, work_));
    check(cudaStreamSynchronize(work_));
    return value;
  }

  long launches() const { return launches_; }

 private:
  // Nothing can wait for the device inside a graph.
  bool eager() const { return options_.dose("eager") > 0 || options_.dose("sync") > 0; }

  void fetch(int i) {
    const int place = i % 2;
    check(cudaStreamWaitEvent(load_, free_[place]));
    check(cudaMemcpyAsync(loaded_[place], host_[place], kPixels * sizeof(float), cudaMemcpyHostToDevice,
                          load_));
    check(cudaEventRecord(ready_[place], load_));
  }

  void passes() {
    perImage_ = 0;
    const int rows = (kSide + bands_ - 1) / bands_;
    for (int pass = 0; pass < passes_; ++pass) {
      for (int step : {1, kSide}) {
        const float* in = step == 1 ? image_ : other_;
        float* out = step == 1 ? other_ : image_;
        for (int first = 0; first < kSide; first += rows) {
          const int now = std::min(rows, kSide - first);
          blur<<<(now * kSide + kThreads - 1) / kThreads, kThreads, 0, work_>>>(in, out, first, now, step);
          ++perImage_;
        }
      }
      contrast<<<kPixels / kThreads, kThreads, 0, work_>>>(image_);
      ++perImage_;
      for (long i = std::lround(options_.dose("sync")); i > 0; --i) check(cudaStreamSynchronize(work_));
    }
    check(cudaGetLastError());
  }

  void capture() {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(work_, cudaStreamCaptureModeThreadLocal));
    passes();
    check(cudaStreamEndCapture(work_, &graph));
    check(cudaGraphInstantiate(&graph_, graph, 0));
    check(cudaGraphDestroy(graph));
  }

  Options options_;
  int passes_;
  int bands_;
  int perImage_ = 0;
  long launches_ = 0;
  cudaStream_t work_ = nullptr;
  cudaStream_t load_ = nullptr;
  cudaEvent_t ready_[2] = {};
  cudaEvent_t free_[2] = {};
  cudaGraphExec_t graph_ = nullptr;
  float* host_[2] = {};
  float* loaded_[2] = {};
  float* image_ = nullptr;
  float* other_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s ITERATIONS FAULT STRENGTH\n", argv[0]);
    return 2;
  }
  const Options options{std::atoi(argv[1]), argv[2], std::atof(argv[3])};
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "no CUDA device: this workload needs an NVIDIA GPU\n");
    return 1;
  }
  Blur blur(options);
  std::vector<double> seconds;
  for (int i = 0; i < options.iterations; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (options.dose("stall") > 0) std::this_thread::sleep_for(kStall * options.strength);
    const float value = blur.run(i);
    if (i % 100 == 0) std::printf("image %d value %.4f\n", i, value);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  check(cudaDeviceSynchronize());
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  std::printf("{\"iterations\": %d, \"iteration_us\": %ld, \"launches\": %ld}\n", options.iterations,
              std::lround(1e6 * seconds[seconds.size() / 2]), blur.launches());
  return 0;
}
