#include "hub/piece_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/publish.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

Error failed_at(const fs::path& path) {
  return Error::resource(fmt::format("{}: {}", path.string(), std::strerror(errno)));
}
fs::path with(const fs::path& blob, const char* tail) { return blob.string() + tail; }

}  // namespace

PieceFile::PieceFile(PieceFile&& other) noexcept
    : blob_(std::move(other.blob_)),
      file_(std::move(other.file_)),
      piece_bytes_(other.piece_bytes_),
      complete_(std::move(other.complete_)),
      arrived_(std::move(other.arrived_)),
      data_(std::exchange(other.data_, -1)),
      parts_(std::exchange(other.parts_, -1)) {}

PieceFile::~PieceFile() {
  if (data_ >= 0) ::close(data_);
  if (parts_ >= 0) ::close(parts_);
}

Result<PieceFile> PieceFile::open(const fs::path& blob, const RemoteFile& file, int64_t piece_bytes) {
  PieceFile out(blob, file, piece_bytes);
  out.data_ = ::open(with(blob, ".incomplete").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (out.data_ < 0) return failed_at(with(blob, ".incomplete"));
  out.parts_ = ::open(with(blob, ".parts").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (out.parts_ < 0) return failed_at(with(blob, ".parts"));
  out.complete_.assign(static_cast<size_t>((file.size + piece_bytes - 1) / piece_bytes), '0');
  out.arrived_.assign(out.complete_.size(), 0);
  if (out.read_parts()) return out;
  std::string fresh(reinterpret_cast<const char*>(&piece_bytes), sizeof(piece_bytes));
  fresh.append(out.complete_.begin(), out.complete_.end());
  if (::ftruncate(out.data_, 0) != 0 || ::ftruncate(out.data_, file.size) != 0)
    return failed_at(with(blob, ".incomplete"));
  if (::ftruncate(out.parts_, 0) != 0 ||
      ::pwrite(out.parts_, fresh.data(), fresh.size(), 0) != static_cast<ssize_t>(fresh.size()))
    return failed_at(with(blob, ".parts"));
  return out;
}

// Position in HASH.parts of the bytes that have arrived of a piece.
int64_t PieceFile::arrived_at(int64_t piece) const {
  return static_cast<int64_t>(sizeof(piece_bytes_)) + pieces() + piece * static_cast<int64_t>(sizeof(int64_t));
}

// Reads which pieces are there. Returns false if the files are not those of an earlier download in pieces of this size.
bool PieceFile::read_parts() {
  struct stat data {};
  std::vector<char> stored(static_cast<size_t>(arrived_at(pieces())) + 1);
  const ssize_t got = ::pread(parts_, stored.data(), stored.size(), 0);
  int64_t piece_bytes = 0;
  std::memcpy(&piece_bytes, stored.data(), sizeof(piece_bytes));
  if (got < arrived_at(0) || got > arrived_at(pieces()) || piece_bytes != piece_bytes_ || ::fstat(data_, &data) != 0 ||
      data.st_size != file_.size)
    return false;
  std::copy_n(stored.begin() + sizeof(piece_bytes), complete_.size(), complete_.begin());
  for (int64_t piece = 0; piece < pieces() && arrived_at(piece + 1) <= got; ++piece) {
    int64_t& bytes = arrived_[static_cast<size_t>(piece)];
    std::memcpy(&bytes, stored.data() + arrived_at(piece), sizeof(bytes));
    if (bytes < 0 || bytes > end_of(piece) - begin_of(piece)) bytes = 0;
  }
  return true;
}

int64_t PieceFile::stored_bytes(const fs::path& blob) {
  constexpr int64_t kBlockBytes = 512;  // unit of st_blocks
  struct stat data {};
  return ::stat(with(blob, ".incomplete").c_str(), &data) == 0 ? static_cast<int64_t>(data.st_blocks) * kBlockBytes : 0;
}

Result<void> PieceFile::write(int64_t offset, std::string_view bytes) {
  const int64_t piece = offset / piece_bytes_;
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(data_, bytes.data(), bytes.size(), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return failed_at(with(blob_, ".incomplete"));
    bytes.remove_prefix(static_cast<size_t>(wrote));
    offset += wrote;
  }
  const int64_t arrived = offset - begin_of(piece);
  if (::pwrite(parts_, &arrived, sizeof(arrived), static_cast<off_t>(arrived_at(piece))) != sizeof(arrived))
    return failed_at(with(blob_, ".parts"));
  return {};
}

Result<void> PieceFile::mark(int64_t piece) {
  complete_[static_cast<size_t>(piece)] = '1';
  if (::pwrite(parts_, "1", 1, static_cast<off_t>(sizeof(piece_bytes_)) + piece) != 1)
    return failed_at(with(blob_, ".parts"));
  return {};
}

Result<std::string> PieceFile::hash() const {
  const bool git = file_.hash.size() == 40;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!digest || EVP_DigestInit_ex(digest.get(), git ? EVP_sha1() : EVP_sha256(), nullptr) != 1)
    return Error::internal("hash: computation failed");
  const std::string head = fmt::format("blob {}", file_.size);
  if (git) EVP_DigestUpdate(digest.get(), head.c_str(), head.size() + 1);  // including its terminating zero
  std::vector<char> bytes(1 << 20);
  for (int64_t at = 0; at < file_.size;) {
    const ssize_t got = ::pread(data_, bytes.data(), bytes.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failed_at(with(blob_, ".incomplete"));
    EVP_DigestUpdate(digest.get(), bytes.data(), static_cast<size_t>(got));
    at += got;
  }
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(digest.get(), value, &size);
  std::string out;
  for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", value[i]);
  return out;
}

Result<void> PieceFile::finish() {
  MILLRACE_TRY(const std::string actual, hash());
  std::error_code failed;
  if (actual != file_.hash) {
    fs::remove(with(blob_, ".incomplete"), failed);
    fs::remove(with(blob_, ".parts"), failed);
    return Error::corrupt(
        fmt::format("{}: the download has the hash {}, expected {}; it was removed", file_.name, actual, file_.hash));
  }
  if (::fsync(data_) != 0) return failed_at(with(blob_, ".incomplete"));
  failed = publish(with(blob_, ".incomplete"), blob_);
  if (failed) return Error::resource(fmt::format("{}: {}", blob_.string(), failed.message()));
  fs::remove(with(blob_, ".parts"), failed);
  return {};
}

}  // namespace millrace
