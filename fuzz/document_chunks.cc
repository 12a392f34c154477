// Fuzzes documents of an index: any bytes of any kind are divided into chunks within their bounds, or refused. The
// first byte chooses the kind and the overlap.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "retrieve/text_chunks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size < 1) return 0;
  constexpr DocumentKind kKinds[] = {DocumentKind::plain, DocumentKind::markdown, DocumentKind::html};
  const ChunkOptions options{.max_bytes = 64, .overlap_bytes = data[0] & 4 ? 24 : 0};
  const auto made = chunk_document(kKinds[data[0] & 3 ? (data[0] & 3) - 1 : 0],
                                   {reinterpret_cast<const char*>(data) + 1, size - 1}, options);
  if (!made.ok()) {
    if (made.error().kind != ErrorKind::resource && made.error().kind != ErrorKind::unsupported) std::abort();
    return 0;
  }
  int64_t begin = -1, end = 0;
  for (const TextChunk& chunk : made->chunks) {
    if (chunk.begin <= begin || chunk.end <= end || chunk.end - chunk.begin > options.max_bytes) std::abort();
    if (chunk.end > static_cast<int64_t>(made->text.size()) || chunk.heading.size() > 300) std::abort();
    begin = chunk.begin;
    end = chunk.end;
  }
  return 0;
}
