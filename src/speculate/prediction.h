// Drafts from the text that a request expects as its answer (Request::prediction), such as the file that it edits:
// OpenAI's predicted outputs. While the answer equals the prediction, the draft is the prediction's next tokens. After
// a difference, the place in the prediction is found again: the end of the longest sequence of the answer's last tokens
// that the prediction contains.
//
//   prediction   int count = 0 ; return count ;
//   answer       int total = 0 ;                    found again at "= 0 ;", draft: return count ;
#pragma once

#include "flow/sequence.h"

namespace millrace {

// Appends to `out` up to `most` tokens of the prediction that may follow the stream's tokens. Appends none if the place
// in the prediction is not known.
void draft_predicted(Sequence& stream, int64_t most, std::vector<TokenId>& out);

}  // namespace millrace
