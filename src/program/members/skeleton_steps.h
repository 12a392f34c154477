// The steps of Skeleton-of-Thought, for the members that begin with a skeleton.
//
//   question -> gen skeleton  "1. ...        -> fork  point 1: gen its text  |  join: the texts in order
//                              2. ..."                point 2: gen its text  |
#pragma once

#include "program/builder.h"
#include "program/member.h"

namespace millrace {

// How the model is asked. `prompts`: by the two prompts of the paper. `headings`: not at all, because it was trained to
// answer with a list below "Points:" and a sentence for each point below "Details:".
enum class SkeletonForm { prompts, headings };

struct SkeletonOptions {
  SkeletonForm form = SkeletonForm::prompts;
  int64_t most = 10;            // points
  int64_t skeleton_tokens = 0;  // limit of the skeleton; 0: that of an answer
  int64_t point_tokens = 0;     // limit of a point's text; 0: that of an answer

  static Result<SkeletonOptions> read(const OptionValues& options);
};

// The messages with which the program begins. With `prompts`, the question comes later, in the model's prompts.
std::vector<ProgramMessage> skeleton_messages(const SkeletonOptions& options, const ProgramQuestion& question);

// Appends the steps to a program that has these messages, and sets the variable `skeleton_answer`. If the model lists
// no points, the answer is what it has written instead.
void add_skeleton_steps(const SkeletonOptions& options, const ProgramQuestion& question, ProgramBuilder& build);

}  // namespace millrace
