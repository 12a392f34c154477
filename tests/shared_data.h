// Optional data outside the repository (tokenizer vectors, chat templates, trained weights). Tests that
// use it skip with a clear message where it is absent. Searched in $MILLRACE_SHARED_DATA, then in
// ../shared/data next to the checkout.
#pragma once

#include <gtest/gtest.h>
#include <lzma.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "test_paths.h"

namespace millrace::testing {

inline std::filesystem::path shared_data() {
  if (const char* dir = std::getenv("MILLRACE_SHARED_DATA")) return dir;
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / ".." / "shared" / "data";
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

// Reads a file, unpacking it when its name ends in .xz.
inline std::string read_maybe_xz(const std::filesystem::path& path) {
  std::string raw = read_file(path);
  if (path.extension() != ".xz") return raw;
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK) return {};
  std::string out;
  std::string chunk(1 << 16, '\0');
  stream.next_in = reinterpret_cast<const uint8_t*>(raw.data());
  stream.avail_in = raw.size();
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK) {
    stream.next_out = reinterpret_cast<uint8_t*>(chunk.data());
    stream.avail_out = chunk.size();
    status = lzma_code(&stream, LZMA_FINISH);
    out.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  lzma_end(&stream);
  return status == LZMA_STREAM_END ? out : std::string();
}

}  // namespace millrace::testing

// Skips the running test unless shared_data()/relative exists.
#define MILLRACE_NEEDS_SHARED(relative)                                                         \
  do {                                                                                          \
    if (!std::filesystem::exists(::millrace::testing::shared_data() / (relative)))              \
      GTEST_SKIP() << "needs shared data file " << (relative) << " (set MILLRACE_SHARED_DATA)"; \
  } while (0)
