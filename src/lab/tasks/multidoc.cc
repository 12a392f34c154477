// Short documents about made-up people and towns. A question needs one document, or the person's and the town's. The
// answer quotes what it is from and ends with the name that was asked for.
#include <algorithm>

#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {
namespace {

constexpr int64_t kDocumentLength = 130;  // about
constexpr int64_t kMaxTowns = 6;
constexpr int64_t kMoreQuestions = 8, kMaxQuestions = 32;  // for training

struct Town {
  std::string name, country, food;
};

struct Person {
  std::string first, last, job, animal, pet;
  const Town* born = nullptr;
  const Town* home = nullptr;
  std::string name() const { return first + " " + last; }
};

std::string place_of(const Town& town) { return town.name + " is a town in " + town.country + "."; }
std::string document(const Town& town) { return place_of(town) + " It is known for its " + town.food + "."; }

std::string places_of(const Person& person, bool home) {
  return person.name() + " was born in " + person.born->name + (home ? " and lives in " + person.home->name : "") + ".";
}

std::string work_of(const Person& person) { return person.first + " works as " + with_article(person.job); }

std::string document(const Person& person) {
  return places_of(person, true) + " " + work_of(person) + " and has " + with_article(person.animal) + " called " +
         person.pet + ".";
}

// Different from those before it.
std::string new_name(LabRandom& random, std::vector<std::string>& taken) {
  std::string name = name_word(random);
  while (std::ranges::find(taken, name) != taken.end()) name = name_word(random);
  return taken.emplace_back(name);
}

std::pair<std::string, std::string> ask(LabRandom& random, const Person& person) {
  const std::string name = person.name(), born = places_of(person, false), home = places_of(person, true);
  switch (random.below(8)) {
    case 0: return {"Where was " + name + " born?", born};
    case 1: return {"Where does " + name + " live?", home};
    case 2: return {"What is the job of " + name + "?", work_of(person) + "."};
    case 3:
      return {"What is the " + person.animal + " of " + name + " called?",
              person.first + " has " + with_article(person.animal) + " called " + person.pet + "."};
    case 4: return {"In which country was " + name + " born?", born + " " + place_of(*person.born)};
    case 5: return {"In which country does " + name + " live?", home + " " + place_of(*person.home)};
    case 6: return {"What is the town known for where " + name + " lives?", home + " " + document(*person.home)};
    default: return {"What is the town known for where " + name + " was born?", born + " " + document(*person.born)};
  }
}

}  // namespace

LabItem make_multidoc(LabRandom& random, int64_t length) {
  const int64_t documents = std::max<int64_t>(3, length / kDocumentLength);
  const int64_t town_count = std::clamp<int64_t>(documents / 2, 2, kMaxTowns), people_count = documents - town_count;
  std::vector<std::string> taken, texts;
  std::vector<Town> towns;
  for (int64_t i = 0; i < town_count; ++i)
    towns.push_back({new_name(random, taken), new_name(random, taken), std::string(random.pick(kFoods))});
  std::vector<Person> people;
  for (int64_t i = 0; i < people_count; ++i) {
    Person person;
    person.first = new_name(random, taken);
    person.last = new_name(random, taken);
    person.job = random.pick(kJobs);
    person.animal = random.pick(kAnimals);
    person.pet = new_name(random, taken);
    person.born = &random.pick(towns);
    person.home = &random.pick(towns);
    people.push_back(std::move(person));
  }
  for (const Town& town : towns) texts.push_back(document(town));
  for (const Person& person : people) texts.push_back(document(person));
  random.shuffle(texts);
  std::string prompt;
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i] = "Document " + std::to_string(i + 1) + ": " + texts[i] + "\n";
    prompt += texts[i];
  }
  const auto [question, answer] = ask(random, random.pick(people));
  LabItem item = {
      .messages = {{"user", prompt + "\nQuestion: " + question}}, .answer = answer, .documents = std::move(texts)};
  for (int64_t i = std::clamp(2 * people_count, kMoreQuestions, kMaxQuestions); i > 0; --i) {
    auto [another, its] = ask(random, random.pick(people));
    item.more.push_back({"Question: " + another, its});
  }
  return item;
}

}  // namespace millrace::lab
