// Drafts from the text that a request expects as its answer (Request::prediction), such as the file that it edits:
// OpenAI's predicted outputs. While the answer is the prediction, the draft is what follows there. Where it differs,
// the place is found again by the longest of the answer's last tokens that the prediction has.
//
//   prediction   int count = 0 ; return count ;
//   answer       int total = 0 ;                    found again at "= 0 ;", draft: return count ;
#pragma once

#include "flow/sequence.h"

namespace millrace {

// Appends up to `most` tokens of the prediction that may follow the stream's; none where its place is not known.
void draft_predicted(Sequence& stream, int64_t most, std::vector<TokenId>& out);

}  // namespace millrace
