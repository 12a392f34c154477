// Embedder: converts texts to vectors by pooling their tokens' final hidden states. Like Scorer, it runs a model with
// its own KV cache. Each text is a separate stream, so its vector does not depend on the rest of the batch. Not
// thread-safe.
//
// An encoder's texts run whole: a text that does not fit into a batch begins the next one.
//
//   texts    a a a a a | b b | c c c c c c c      batches of at most batch_tokens; a decoder's text may span several
//   rows     pooling last: each text's last token    mean, none: every token    cls: each text's first token
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evaluate/pooling.h"
#include "models/model_runner.h"
#include "run/language_model.h"

namespace millrace {

struct EmbedderOptions {
  int threads = 0;             // 0: all cores
  int64_t context = 512;       // maximum tokens of a text
  int64_t batch_tokens = 512;  // maximum tokens of one forward pass
  std::string kv_format = "f16";
};

class Embedder {
 public:
  // Errors: user (options), resource.
  static Result<std::unique_ptr<Embedder>> create(std::shared_ptr<const LanguageModel> model,
                                                  const EmbedderOptions& options);

  // Receives the vector [width] of one text, or with Pooling::none its vectors [tokens, width]. Vectors are not
  // normalized; texts arrive in order. If the sink returns an error, run() stops and returns it.
  using Sink = std::function<Result<void>(size_t text, std::vector<float> values)>;

  // Errors: user (an empty text, a text longer than the context, a token outside the vocabulary), or the sink's.
  Result<void> run(std::span<const std::vector<TokenId>> texts, Pooling pooling, const Sink& sink);

  int64_t context() const { return longest_; }
  int64_t width() const { return model_->parts().model->spec().width; }

 private:
  struct Cursor;
  Embedder() = default;
  Result<void> check(std::span<const std::vector<TokenId>> texts) const;
  Result<void> fill_batch(std::span<const std::vector<TokenId>> texts, Pooling pooling, Cursor& cursor);
  Result<void> take_rows(std::span<const std::vector<TokenId>> texts, Pooling pooling, const Sink& sink);

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<ModelRunner> runner_;
  int64_t longest_ = 0;
  bool whole_texts_ = false;  // an encoder: no text continues in the next batch
  struct Row {
    size_t text;
    bool last;  // last row of its text
  };
  std::vector<Row> rows_;
  std::vector<BlockId> open_blocks_;   // blocks of the text that continues in the next batch
  std::vector<BlockId> whole_blocks_;  // blocks of texts that end in this batch
  std::vector<double> sum_;            // sum of the current text's vectors, for the mean
  std::vector<float> values_;          // vectors of the current text
};

}  // namespace millrace
