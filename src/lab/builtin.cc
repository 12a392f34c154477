// The built-in tasks.
#include <array>

#include "lab/tasks/tasks.h"

namespace millrace {

std::span<const LabTask> lab_tasks() {
  static const std::array tasks = {
      LabTask{"needle", "find the value of a key in a long text with other keys", true, lab::make_needle, score_quote},
      LabTask{"multidoc", "answer a question that needs one or two of several documents", true, lab::make_multidoc,
              score_quote},
      LabTask{"arithmetic", "add two to four numbers at once", false, lab::make_arithmetic, score_text},
      LabTask{"steps", "add two to four numbers with worked steps", false, lab::make_steps, lab::score_steps},
      LabTask{"lists", "answer by a list of points, and a sentence for each point", false, lab::make_lists,
              lab::score_lists},
      LabTask{"icl", "label a word or number by a rule that only examples show", true, lab::make_icl, score_text},
      LabTask{"extract", "turn a sentence into a JSON object", false, lab::make_extract, lab::score_extract},
      LabTask{"summary", "name the key facts of a long record, in order", true, lab::make_summary, lab::score_summary},
      LabTask{"copy", "copy, reverse, sort or repeat words", false, lab::make_copy, score_text},
      LabTask{"dictionary", "translate with a dictionary of a toy language", true, lab::make_dictionary,
              lab::score_dictionary},
      LabTask{"dialogue", "answer in a conversation and keep to the rule of its system message", true,
              lab::make_dialogue, score_text},
      LabTask{"smalltalk", "greet, add, and say what it does not know", false, lab::make_smalltalk,
              lab::score_smalltalk},
  };
  return tasks;
}

}  // namespace millrace
