// A sum with worked steps (chain of thought, Wei et al., 2022): number after number, tens and ones apart.
#include <charconv>

#include "lab/tasks/sums.h"
#include "lab/tasks/tasks.h"

namespace millrace::lab {
namespace {

constexpr std::string_view kEnd = "The answer is ";

// 85 + 36: 80 + 30 = 110, 5 + 6 = 11, 110 + 11 = 121.
std::string step(int64_t a, int64_t b) {
  const int64_t tens = a / 10 * 10 + b / 10 * 10, ones = a % 10 + b % 10;
  return sum_text({a, b}) + ": " + sum_text({a / 10 * 10, b / 10 * 10}) + " = " + numbered(tens) + ", " +
         sum_text({a % 10, b % 10}) + " = " + numbered(ones) + ", " + sum_text({tens, ones}) + " = " + numbered(a + b) +
         ". ";
}

}  // namespace

std::string worked_sum(const std::vector<int64_t>& numbers) {
  std::string answer;
  int64_t sum = numbers[0];
  for (size_t i = 1; i < numbers.size(); sum += numbers[i++]) answer += step(sum, numbers[i]);
  return answer + std::string(kEnd) + numbered(sum) + ".";
}

LabItem make_steps(LabRandom& random, int64_t) {
  const auto numbers = draw_sum(random);
  return {.messages = {{"user", "Step by step: " + sum_text(numbers) + " ="}}, .answer = worked_sum(numbers)};
}

// By the number behind the last "The answer is ".
double score_steps(const LabItem& item, std::string_view given) {
  const auto result = [](std::string_view text) {
    int64_t value = -1;
    const size_t at = text.rfind(kEnd);
    if (at != std::string_view::npos) std::from_chars(text.data() + at + kEnd.size(), text.data() + text.size(), value);
    return value;
  };
  const int64_t found = result(given);
  return found >= 0 && found == result(item.answer) ? 1 : 0;
}

}  // namespace millrace::lab
