#include "attention/workers/lane_area.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/system.h"

namespace millrace {
namespace {

Error no_area(const char* what, int64_t bytes) {
  return Error::resource(
      fmt::format("attention workers: {} of {} MB: {}; use transport=socket", what, bytes >> 20, std::strerror(errno)));
}

}  // namespace

LaneAreas& LaneAreas::operator=(LaneAreas&& other) noexcept {
  unmap();
  keys_ = other.keys_, queries_ = other.queries_, outputs_ = other.outputs_;
  own_ = std::move(other.own_);
  floats_ = std::exchange(other.floats_, nullptr);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  return *this;
}

void LaneAreas::unmap() {
  if (mapped_bytes_ > 0) munmap(floats_, static_cast<size_t>(mapped_bytes_));
  mapped_bytes_ = 0;
}

Result<LaneAreas> LaneAreas::create(const WorkerSetup& setup) {
  LaneAreas areas(setup);
  MILLRACE_TRY(areas.own_, AlignedBuffer::allocate(bytes(setup), "attention workers"));
  areas.floats_ = areas.own_.as<float>();
  return areas;
}

Result<LaneAreas> LaneAreas::map(const WorkerSetup& setup, int file) {
  LaneAreas areas(setup);
  struct stat info {};
  if (fstat(file, &info) != 0 || info.st_size < bytes(setup))
    return Error::corrupt("attention worker: the shared memory is smaller than the hello says");
  void* at = mmap(nullptr, static_cast<size_t>(bytes(setup)), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return no_area("shared memory", bytes(setup));
  areas.floats_ = static_cast<float*>(at);
  areas.mapped_bytes_ = bytes(setup);
  return areas;
}

Result<int> LaneAreas::create_file(const WorkerSetup& setup) {
  static std::atomic<int> count{0};
  const std::string name = fmt::format("/millrace-attention-{}-{}", getpid(), count.fetch_add(1));
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0) return no_area("shared memory", bytes(setup));
  shm_unlink(name.c_str());
  // Without the reservation, a full file system would end the process at its first write.
  if (reserve_file_space(file, bytes(setup), true)) return file;
  const Error error = no_area("shared memory", bytes(setup));
  close(file);
  return error;
}

}  // namespace millrace
