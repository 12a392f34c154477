// DocumentContext: decides how a prompt that contains documents becomes keys and values. Each member is one file under
// contexts/ and one entry in builtin.cc. A member says which tokens are computed separately, what they see, where their
// keys are moved when they are complete, which of them are computed again, and how the tokens behind the documents
// weigh them. The engine does everything else. Immutable, so several threads may use one at once.
//
//   prompt   <s> [document 0] [document 1] question      tokens 0 | 1 .. 4 | 5 .. 9 | 10 ..
//   part     {5, 10, moved 4, sees <s> and itself}       computed at positions 1 .. 5, then moved to 5 .. 9
//   stays                                                ... or kept there, and the question follows the longest one
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "flow/batch.h"
#include "millrace/request.h"

namespace millrace {

// Tokens [begin, end) of the prompt, which are computed separately.
struct ContextPart {
  int64_t begin = 0;
  int64_t end = 0;
  // Their positions during the computation are lower than their indices in the prompt by this number. Then their keys
  // are rotated to the indices, unless the part `stays`.
  int64_t moved = 0;
  bool stays = false;
  // After the part is complete, some of its tokens are computed again at their indices, in order, and then see every
  // token before them. These are the first `fresh_first` tokens, or the share `fresh_share` of tokens whose keys and
  // values change most in the model's second layer. At most one of the two is set, and neither for a part that stays.
  int64_t fresh_first = 0;
  double fresh_share = 0;
  // For parts that are placed: the document's first tokens, before `begin`. The stream computes them like tokens that
  // belong to no part.
  int64_t skipped = 0;
  // Slots that the part's tokens see; slots are indices in the prompt. They are tokens before `begin` that are in no
  // part, and the part itself. If the tokens before `begin` are the prompt's first `begin - moved` tokens, the part's
  // keys equal those of a stream that begins with them, and the prefix cache shares them with such streams.
  std::vector<KeySegment> sees = {};

  bool refreshes() const { return fresh_first > 0 || fresh_share > 0; }
};

struct ContextPlan {
  // Ascending and disjoint. Tokens outside of parts see every token before them.
  std::vector<ContextPart> parts;
  // The tokens behind the last part, which are the question and the answer: their positions are lower than their
  // indices by `moved`. They see these segments, the last of which is open (kOpenEnd). Without segments they see every
  // token.
  int64_t moved = 0;
  std::vector<KeySegment> sees;
  DocumentWeights documents;
  // Parts are computed outside of the stream, which has no chunks of them: their rows are placed in it (place_parts()).
  bool placed = false;

  static constexpr int64_t kOpenEnd = INT64_MAX;

  bool empty() const { return parts.empty(); }
  bool behind(int64_t token) const { return !parts.empty() && token >= parts.back().end; }
};

// Documents that an encoder reads in place of the model (run/documents/encoded_documents.h).
struct EncoderChoice {
  std::string path;    // folder of a checkpoint
  int64_t piece = 0;   // tokens that it reads at once
  int64_t tokens = 0;  // whose keys and values the engine keeps
  bool start = false;  // each piece begins with the start token

  bool operator==(const EncoderChoice&) const = default;
};

// Rows that were trained to stand behind each document, in place of tokens (run/documents/link_rows.h).
struct LinkRowsChoice {
  std::string path;
  int64_t first = 0;  // row of the first document's first link
  int64_t each = 0;   // rows behind a document

  bool operator==(const LinkRowsChoice&) const = default;
};

using DocumentTokens = std::vector<std::vector<TokenId>>;  // tokens of each document

class DocumentContext {
 public:
  virtual ~DocumentContext() = default;
  // `documents` are ascending and disjoint, at least one, and end before the prompt does.
  virtual ContextPlan plan(std::span<const PromptDocument> documents) const = 0;
  // Tokens that a model was trained to find behind document `index` of a prompt. They are in no part.
  virtual std::vector<TokenId> links(int64_t /*index*/) const { return {}; }
  // Not null: the rows that replace the links, whose ids mean nothing.
  virtual const LinkRowsChoice* link_rows() const { return nullptr; }
  // Not null: documents leave the prompt (take_documents()), and plan() and links() are not used.
  virtual const EncoderChoice* encoder() const { return nullptr; }
};

// Puts the context's links behind every document. A request whose documents are not in order is left as it is.
void add_links(const DocumentContext& context, Request& request);

// Takes the documents and their tokens out of the request. One whose documents are not in order, or have no question
// behind them, is left as it is; returns none.
DocumentTokens take_documents(Request& request);

using DocumentContextFactory = Result<std::unique_ptr<const DocumentContext>> (*)(const OptionValues& options);
const Registry<DocumentContextFactory>& document_contexts();

// `text` is NAME[:key=value,...]; null for "" and "none". Errors (user): unknown name or option.
Result<std::shared_ptr<const DocumentContext>> make_document_context(std::string_view text);

// The part that has this token; null: none.
const ContextPart* part_of(const ContextPlan& plan, int64_t token);
// Variant of a plan for stores where keys and values cannot be replaced, such as blocks that a codec encodes. The first
// tokens of a part that would be computed again are then computed only once, and see the same tokens as in that second
// pass. Not for plans with a `fresh_share`.
ContextPlan place_parts(ContextPlan plan);
// The first token after `computed` tokens at which a part begins or ends, or, in a part that is placed, `computed`. -1:
// there is none.
int64_t next_border(const ContextPlan& plan, int64_t computed);

}  // namespace millrace
