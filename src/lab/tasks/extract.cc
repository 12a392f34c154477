// A sentence about a purchase, and the JSON object that says the same.
#include "base/json_text.h"
#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {

LabItem make_extract(LabRandom& random, int64_t) {
  const std::string last = name_word(random), name = name_word(random) + " " + last, day(random.pick(kDays));
  const std::string color(random.pick(kColors)), item(random.pick(kObjects));
  const int64_t count = random.between(2, 20), price = random.between(2, 99);
  const std::string what =
      numbered(count) + " " + color + " " + item + (item.ends_with('x') || item.ends_with('h') ? "es" : "s");
  const std::string paid = numbered(price) + " coins";
  std::string sentence;
  switch (random.below(4)) {
    case 0: sentence = "On " + day + " " + name + " bought " + what + " for " + paid + "."; break;
    case 1: sentence = name + " paid " + paid + " for " + what + " on " + day + "."; break;
    case 2: sentence = "For " + paid + ", " + name + " took " + what + " home on " + day + "."; break;
    default: sentence = "It was " + day + " when " + what + " were sold to " + name + " for " + paid + "."; break;
  }
  const nlohmann::ordered_json answer = {{"name", name},   {"day", day},     {"item", item},
                                         {"color", color}, {"count", count}, {"price", price}};
  return {.messages = {{"user", "As JSON with name, day, item, color, count and price: " + sentence}},
          .answer = answer.dump()};
}

// Equal as JSON objects, whatever the order and the spaces.
double score_extract(const LabItem& item, std::string_view given) {
  const auto found = parse_json<nlohmann::json>(given);
  return !found.is_discarded() && found == parse_json<nlohmann::json>(item.answer) ? 1 : 0;
}

}  // namespace millrace::lab
