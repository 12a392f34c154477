// Learns when a cascade's smaller model may answer (FrugalGPT, Chen et al., 2023), from questions with known answers.
#pragma once

#include <span>

namespace millrace {

// One question, answered by both models.
struct CascadeSample {
  double confidence = 0;                    // that of the smaller model's answer
  double small_score = 0, large_score = 0;  // the answers' scores, 0 to 1
  double small_cost = 0, large_cost = 0;    // in any unit
};

struct CascadeChoice {
  double threshold = 0;  // the larger model is asked below this confidence
  double score = 0;      // mean of the cascade
  double cost = 0;       // mean of the cascade
  double asked = 0;      // share of questions for which the larger model is asked
};

// Returns what a cascade with this threshold does on the samples, of which there is at least one.
CascadeChoice cascade_with(std::span<const CascadeSample> samples, double threshold);

// Returns the cheapest threshold whose mean score is at most `loss` below that of the larger model alone. If several
// are equally cheap, returns the one with the highest score. There is always one: above all confidences, the larger
// model is asked each time.
CascadeChoice learn_threshold(std::span<const CascadeSample> samples, double loss);

}  // namespace millrace
