// PieceFile: a partial download in the cache, whose pieces may arrive in any order:
//
//     HASH.incomplete   full size, with holes for missing pieces
//     HASH.parts        the piece size (8 bytes, little-endian), then one byte per piece: '1' if complete. If pieces
//                       have begun, 8 bytes per piece follow: the bytes that have arrived from its beginning on
//
// The caller must hold the file's lock (HubCache::lock_file()). Several threads may write pieces concurrently.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "hub/repository.h"

namespace millrace {

class PieceFile {
 public:
  // Opens a download; resumes an earlier partial download of the same file. Errors: resource.
  static Result<PieceFile> open(const std::filesystem::path& blob, const RemoteFile& file, int64_t piece_bytes);
  ~PieceFile();
  PieceFile(PieceFile&& other) noexcept;
  PieceFile& operator=(PieceFile&&) = delete;

  int64_t pieces() const { return static_cast<int64_t>(complete_.size()); }
  bool has(int64_t piece) const { return complete_[static_cast<size_t>(piece)] == '1'; }
  int64_t begin_of(int64_t piece) const { return piece * piece_bytes_; }
  int64_t end_of(int64_t piece) const { return std::min(file_.size, (piece + 1) * piece_bytes_); }

  // Bytes of the piece that an earlier download has left, from its beginning on.
  int64_t arrived(int64_t piece) const { return arrived_[static_cast<size_t>(piece)]; }

  // Writes the next bytes of a piece and records that they are there. `offset`: in the file; bytes of the piece before
  // it must have been written. `bytes`: all in one piece.
  Result<void> write(int64_t offset, std::string_view bytes);
  Result<void> mark(int64_t piece);
  // Verifies the hash and renames the file to its final name. Errors: corrupt (the file is then removed), resource.
  Result<void> finish();

  // Returns the bytes that a partial download of `blob` takes on the disk; 0: there is none.
  static int64_t stored_bytes(const std::filesystem::path& blob);

 private:
  PieceFile(const std::filesystem::path& blob, const RemoteFile& file, int64_t piece_bytes)
      : blob_(blob), file_(file), piece_bytes_(piece_bytes) {}
  Result<std::string> hash() const;
  bool read_parts();
  int64_t arrived_at(int64_t piece) const;

  std::filesystem::path blob_;
  RemoteFile file_;
  int64_t piece_bytes_;
  std::vector<char> complete_;
  std::vector<int64_t> arrived_;  // as the file was opened
  int data_ = -1, parts_ = -1;
};

}  // namespace millrace
