// A sum, to be answered by the number alone.
#include "lab/tasks/sums.h"
#include "lab/tasks/tasks.h"

namespace millrace::lab {

LabItem make_arithmetic(LabRandom& random, int64_t) {
  const auto numbers = draw_sum(random);
  return {.messages = {{"user", "Only the result: " + sum_text(numbers) + " ="}}, .answer = numbered(total(numbers))};
}

}  // namespace millrace::lab
