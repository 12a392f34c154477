// A file on its way into the cache, in pieces that come in any order:
//
//     HASH.incomplete   the whole size, with holes where pieces are missing
//     HASH.parts        the piece size (8 bytes, little-endian), and a byte for each piece: '1' once it is there
//
// Whoever uses it holds the file's lock. Pieces may be written by several threads at once.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "hub/repository.h"

namespace millrace {

class PieceFile {
 public:
  // Goes on with what an earlier try has left. Errors: resource.
  static Result<PieceFile> open(const std::filesystem::path& blob, const RemoteFile& file, int64_t piece_bytes);
  ~PieceFile();
  PieceFile(PieceFile&& other) noexcept;
  PieceFile& operator=(PieceFile&&) = delete;

  int64_t pieces() const { return static_cast<int64_t>(there_.size()); }
  bool has(int64_t piece) const { return there_[static_cast<size_t>(piece)] == '1'; }
  int64_t begin_of(int64_t piece) const { return piece * piece_bytes_; }
  int64_t end_of(int64_t piece) const { return std::min(file_.size, (piece + 1) * piece_bytes_); }

  Result<void> write(int64_t offset, std::string_view bytes);
  Result<void> mark(int64_t piece);
  // Compares the hash, and gives the file its name. Errors: corrupt (it is then removed), resource.
  Result<void> finish();

 private:
  PieceFile(const std::filesystem::path& blob, const RemoteFile& file, int64_t piece_bytes)
      : blob_(blob), file_(file), piece_bytes_(piece_bytes) {}
  Result<std::string> hash() const;

  std::filesystem::path blob_;
  RemoteFile file_;
  int64_t piece_bytes_;
  std::vector<char> there_;
  int data_ = -1, parts_ = -1;
};

}  // namespace millrace
