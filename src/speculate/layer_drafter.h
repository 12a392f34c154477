// Shared by drafters with a layer over the model's hidden states (models/draft_heads/draft_layer.h). The draft is a
// tree that grows by one level in each pass: of the candidates behind the last level, those most likely to be reached
// run next. In the end the likeliest candidates of all levels are the draft (Li et al., 2024, EAGLE-2: Faster Inference
// of Language Models with Dynamic Draft Trees).
//
//   stream   the cat | pass 1: sat 0.6, ran 0.3 | pass 2, sat and ran: on 0.4, down 0.1; away 0.2, . 0.05
//            three tokens of these: sat, on, ran
//
// In a static tree, as in the first EAGLE, assumed probabilities by place and rank replace the layer's.
#pragma once

#include "speculate/drafter.h"

namespace millrace {

struct LayerTree {
  int64_t depth = 1;     // tokens of the longest branch; each level is one pass
  int64_t tokens = 1;    // tokens of a draft
  int64_t top = 1;       // maximum candidates behind each token, and maximum tokens of a pass; 1: a chain
  bool assumed = false;  // true: a static tree
};

// Reads the options k, tokens, top and tree. Errors: user.
Result<LayerTree> read_layer_tree(const OptionValues& options);
std::unique_ptr<Drafter> make_layer_drafter(DraftModelSpec spec, const LayerTree& tree);

}  // namespace millrace
