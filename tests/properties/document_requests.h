// Requests with documents, and stored keys and values: what the tests of document contexts share.
#pragma once

#include "model_runner.h"
#include "properties/stream_bits.h"

namespace millrace::testing {

// A prompt of a start token, documents and a question.
inline Request document_request(const std::vector<std::vector<TokenId>>& documents,
                                const std::vector<TokenId>& question) {
  Request request = make_request(2, 1, 6, 64);
  request.prompt = {1};
  for (const auto& document : documents) {
    const int64_t begin = std::ssize(request.prompt);
    request.prompt.insert(request.prompt.end(), document.begin(), document.end());
    request.documents.push_back({begin, std::ssize(request.prompt)});
  }
  request.prompt.insert(request.prompt.end(), question.begin(), question.end());
  return request;
}

// A stream's rows [first, end) of every layer and head, keys and values.
struct StoredRows {
  std::vector<std::vector<uint8_t>> rows;

  template <typename Body>
  static void each(TestRunner& runner, int64_t first, int64_t end, const Body& body) {
    KvPool& kv = runner.kv();
    const int64_t block_tokens = kv.layout().block_tokens;
    for (int64_t layer = 0; layer < std::ssize(kv.layout().layers); ++layer)
      for (int64_t h = 0; h < kv.layout().layers[static_cast<size_t>(layer)].kv_heads; ++h)
        for (int64_t slot = first; slot < end; ++slot) {
          const BlockId block = runner.blocks()[static_cast<size_t>(slot / block_tokens)];
          const int64_t offset = slot % block_tokens * kv.row_bytes(layer), bytes = kv.row_bytes(layer);
          body(kv.keys(layer, block, h) + offset, bytes);
          body(kv.values(layer, block, h) + offset, bytes);
        }
  }
  StoredRows(TestRunner& runner, int64_t first, int64_t end) {
    each(runner, first, end, [&](const uint8_t* row, int64_t bytes) { rows.emplace_back(row, row + bytes); });
  }
  void place(TestRunner& runner, int64_t first, int64_t end) const {
    auto next = rows.begin();
    each(runner, first, end, [&](uint8_t* row, int64_t) { std::ranges::copy(*next++, row); });
  }
};

}  // namespace millrace::testing
