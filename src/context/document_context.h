// DocumentContext: decides how the keys and values of a prompt with documents are computed. Each implementation is one
// file under contexts/ and one entry in builtin.cc. Its plan says which tokens are computed separately and which slots
// they see, to which positions their keys are then moved, which of them are computed again, and how the tokens after
// the documents weigh the documents' keys. The engine does everything else. Immutable and thread-safe.
//
//   prompt   <s> [document 0] [document 1] question      tokens 0 | 1 .. 4 | 5 .. 9 | 10 ..
//   part     {5, 10, moved 4, sees <s> and itself}       document 1: computed at positions 1 .. 5, then moved to 5 .. 9
//   stays                                                document 1 stays at 1 .. 5, before the question
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

// Tokens [begin, end) of the prompt that are computed separately, usually one document.
struct ContextPart {
  int64_t begin = 0;
  int64_t end = 0;
  // Index in the prompt minus position, while the tokens are computed. Their keys are then rotated to the indices,
  // unless the part `stays`.
  int64_t moved = 0;
  bool stays = false;
  // After the part is complete, some of its tokens are computed again at their indices, in order, and then see every
  // token before them. These are the first `fresh_first` tokens, or the share `fresh_share` of tokens whose keys and
  // values change most in the model's second layer. At most one of the two is set, and neither for a part that stays.
  int64_t fresh_first = 0;
  double fresh_share = 0;
  // If ContextPlan::placed: number of the document's tokens before `begin`, which the stream computes like tokens
  // outside of parts.
  int64_t skipped = 0;
  // Slots that the part's tokens see: the part itself and tokens before `begin` that are in no part. A slot is an index
  // in the prompt. If the tokens before `begin` are the prompt's first `begin - moved` tokens, the part's keys equal
  // those of a stream that consists of these tokens and the part; the prefix cache then shares them with such streams.
  std::vector<KeySegment> sees = {};

  bool refreshes() const { return fresh_first > 0 || fresh_share > 0; }
};

struct ContextPlan {
  // Ascending and disjoint. Tokens outside of parts see every token before them.
  std::vector<ContextPart> parts;
  // For the tokens after the last part, which are the question and the answer. `moved`: index minus position. `sees`:
  // segments that they see; the last one is open (kOpenEnd). Without segments they see every token.
  int64_t moved = 0;
  std::vector<KeySegment> sees;
  DocumentWeights documents;
  // true: parts are computed outside of the stream, and their rows are then placed in its slots (see place_parts()).
  bool placed = false;

  static constexpr int64_t kOpenEnd = INT64_MAX;

  bool empty() const { return parts.empty(); }
  bool behind(int64_t token) const { return !parts.empty() && token >= parts.back().end; }
};

// An encoder that reads documents in place of the model (run/documents/encoded_documents.h).
struct EncoderChoice {
  std::string path;    // folder of the encoder's checkpoint
  int64_t piece = 0;   // tokens that the encoder reads at once
  int64_t tokens = 0;  // maximum of tokens whose keys and values the engine keeps
  bool start = false;  // each piece begins with the start token

  bool operator==(const EncoderChoice&) const = default;
};

// Trained embedding rows, inserted after each document in place of tokens (run/documents/link_rows.h).
struct LinkRowsChoice {
  std::string path;
  int64_t first = 0;  // index of the row for the first link of the first document
  int64_t each = 0;   // number of rows per document

  bool operator==(const LinkRowsChoice&) const = default;
};

using DocumentTokens = std::vector<std::vector<TokenId>>;  // tokens of each document

class DocumentContext {
 public:
  virtual ~DocumentContext() = default;
  // `documents`: at least one, ascending and disjoint. The last one ends before the prompt does.
  virtual ContextPlan plan(std::span<const PromptDocument> documents) const = 0;
  // Returns the link tokens to insert after document `index`, for models that were trained with them. Links are in no
  // part.
  virtual std::vector<TokenId> links(int64_t /*index*/) const { return {}; }
  // If not null, these rows replace the embeddings of the links; the links' ids then mean nothing.
  virtual const LinkRowsChoice* link_rows() const { return nullptr; }
  // If not null, this encoder reads the documents. They are removed from the prompt (take_documents()), and plan() and
  // links() are not used.
  virtual const EncoderChoice* encoder() const { return nullptr; }
};

// Inserts the context's links after every document. Does not change a request whose documents are not in order.
void add_links(const DocumentContext& context, Request& request);

// Removes the documents and their tokens from the request and returns the tokens. If the documents are not in order or
// no question follows them, the request does not change and the result is empty.
DocumentTokens take_documents(Request& request);

using DocumentContextFactory = Result<std::unique_ptr<const DocumentContext>> (*)(const OptionValues& options);
const Registry<DocumentContextFactory>& document_contexts();

// `text`: NAME[:key=value,...]. Returns null for "" and "none". Errors: user (unknown name or option).
Result<std::shared_ptr<const DocumentContext>> make_document_context(std::string_view text);

// Returns the part that contains this token; null: none.
const ContextPart* part_of(const ContextPlan& plan, int64_t token);
// Returns the plan for stores where keys and values cannot be replaced, such as encoded blocks. The first `fresh_first`
// tokens of a part are then computed only once, in the stream, and see every token before them. Not for plans with a
// `fresh_share`.
ContextPlan place_parts(ContextPlan plan);
// Returns the smallest index above `computed` at which a part begins or ends; -1: there is none. If `computed` is in a
// placed part, returns `computed`.
int64_t next_border(const ContextPlan& plan, int64_t computed);

}  // namespace millrace
