// STDC: the rules for English, parses in brackets, and what is dropped in which order.
#include <fstream>

#include "prompt/english_parser.h"
#include "prompt/penn_trees.h"
#include "prompt/policy_files_test.h"
#include "prompt/prompt_words_test.h"

namespace millrace {
namespace {

std::vector<std::string> words_in(const std::string& text) {
  const WordPrompt prompt(text);
  return prompt.texts;
}

std::string words_text(const std::vector<std::string>& words, TokenRange range) {
  std::string out;
  for (int64_t i = range.first; i < range.first + range.count; ++i) out += words[static_cast<size_t>(i)];
  return out.substr(out.find_first_not_of(' '));
}

// The modifiers that the rules find, in order of their words, separated by bars.
std::string modifiers_of(const std::string& text) {
  const auto words = words_in(text);
  Constituents found = parse_english(words);
  std::ranges::sort(found.modifiers, {}, [](const TokenRange& one) { return std::pair(one.first, -one.count); });
  std::string out;
  for (const TokenRange& one : found.modifiers) out += (out.empty() ? "" : " | ") + words_text(words, one);
  return out;
}

std::string core_of(const std::string& text) {
  const auto words = words_in(text);
  std::string out;
  for (const TokenRange& one : parse_english(words).core) out += (out.empty() ? "" : " | ") + words_text(words, one);
  return out;
}

TEST(EnglishParser, FindsModifiers) {
  EXPECT_EQ(modifiers_of("The man who lives here quickly bought an old car in Rome."),
            "who lives here quickly | here | quickly | old | in Rome.");
  EXPECT_EQ(modifiers_of("Lily (a girl of six) ran to the park."), "(a girl of six) | of six) | to the park.");
  EXPECT_EQ(modifiers_of("In the evening, Tom sang because he was happy."), "In the evening, | because he was happy.");
  EXPECT_EQ(modifiers_of("The capital of France, which is large, lies on the Seine."),
            "of France, | which is large, | on the Seine.");
  EXPECT_EQ(modifiers_of("Ada, the author of the first program, was born in London."),
            "the author of the first program, | of the first program, | first | in London.");
  EXPECT_EQ(modifiers_of("He did not go to work after the long war."), "after the long war. | long");
  EXPECT_EQ(modifiers_of("The book that was on the table fell."), "that was on the table | on the table");
}

TEST(EnglishParser, LeavesTheCore) {
  EXPECT_EQ(core_of("The man in Rome quickly bought an old car."), "The man | bought | an | car.");
  EXPECT_EQ(core_of("She is happy."), "She is | happy.");
  EXPECT_EQ(modifiers_of("She is happy."), "");
  EXPECT_EQ(modifiers_of("Tom wants to sleep."), "");             // an infinitive is no phrase of place
  EXPECT_EQ(modifiers_of("Apples, pears, and plums grow."), "");  // a list is no apposition
  EXPECT_EQ(modifiers_of("In Rome."), "");                        // nothing to modify
  EXPECT_TRUE(parse_english({}).core.empty());
}

constexpr const char* kTree =
    "(ROOT (S (NP (DT The) (JJ old) (NN man)) (VP (VBD left) (ADVP (RB quickly)) (PP (IN for) (NP (NNP Rome)))) (. "
    ".)))";

std::string tree_text(const PennTree& tree, const std::vector<TokenRange>& ranges) {
  std::string out;
  for (const TokenRange& one : ranges)
    out +=
        (out.empty() ? "" : " | ") + tree.text.substr(static_cast<size_t>(one.first), static_cast<size_t>(one.count));
  return out;
}

TEST(PennTrees, FindsConstituents) {
  const auto trees =
      read_penn_trees(std::string(kTree) +
                      "\n( (S (NP-SBJ (NP (NN Tom)) (, ,) (SBAR (WHNP (WP who)) (S (-NONE- *T*) (VP (VBZ "
                      "sings)))) (, ,)) (VP (VBD did) (RB not) (VP (VB go) (NP-TMP (NN today))))))");
  ASSERT_TRUE(trees.ok()) << trees.error().message;
  ASSERT_EQ(trees->size(), 2u);
  const PennTree &first = (*trees)[0], &second = (*trees)[1];
  EXPECT_EQ(first.text, "TheoldmanleftquicklyforRome.");
  EXPECT_EQ(tree_text(first, first.constituents.modifiers), "old | quickly | forRome");
  EXPECT_EQ(tree_text(first, first.constituents.core), "Theoldman | left | .");
  EXPECT_EQ(second.text, "Tom,whosings,didnotgotoday");
  EXPECT_EQ(tree_text(second, second.constituents.modifiers), ",whosings | today");
  EXPECT_EQ(penn_key(" The old\nman "), "Theoldman");
  EXPECT_EQ((*read_penn_trees("(X (-LRB- -LRB-) (`` ``))"))[0].text, "(\"");
}

TEST(PennTrees, RefusesWhatIsNone) {
  const auto error = [](const std::string& text) {
    const auto trees = read_penn_trees(text);
    return trees.ok() ? "" : trees.error().message;
  };
  EXPECT_EQ(error(""), "");
  EXPECT_EQ(error("(S (NP (NN a))"), "the parses end inside a tree: a ')' is missing");
  EXPECT_EQ(error("The man"), "expected '(' at byte 0 of the parses");
  EXPECT_EQ(error("(S (NP))"), "the tree at byte 0 has no words");
  EXPECT_EQ(error("(S a) b"), "expected '(' at byte 6 of the parses");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "(S ";
  EXPECT_EQ(error(deep).substr(0, 21), "the tree at byte 603 ");
}

constexpr const char* kPrompt = "[<s>]The old man left quickly for Rome.\nA dog slept there.\n\nWho left ?";

TEST(Stdc, DropsTheCheapestConstituentsFirst) {
  RepeatingModel model;
  model.costs = {{"The", 5},    {" old", 4}, {" man", 5}, {" left", 5},  {" quickly", 1}, {" for", 2},
                 {" Rome.", 3}, {"A", 6},    {" dog", 6}, {" slept", 6}, {" there.", 6},  {"\n", 6}};
  const WordPrompt prompt(kPrompt);  // 14 tokens before the question
  const auto kept = [&](int64_t tokens) {
    return compressed_text("stdc:rate=1,tokens=" + std::to_string(tokens + 4), prompt,
                           model);  // <s>, three of the question
  };
  const std::string rest = "A dog slept there.\n\nWho left ?";
  EXPECT_EQ(kept(14), "<s>The old man left quickly for Rome.\n" + rest);
  EXPECT_EQ(kept(13), "<s>The old man left for Rome.\n" + rest);
  EXPECT_EQ(kept(12), "<s>The old man left\n" + rest);  // a phrase goes as a whole
  EXPECT_EQ(kept(11), "<s>The old man left\n" + rest);
  EXPECT_EQ(kept(10), "<s>The man left\n" + rest);
}

// A sentence that must be cut loses its modifiers first and its subject last.
TEST(Stdc, TheSubjectIsLast) {
  RepeatingModel model;
  const WordPrompt prompt("[<s>]The old man bought a car in Rome.\n\nWho left ?");
  for (int64_t tokens = 0; tokens <= 10; ++tokens) {
    const std::string kept = compressed_text("stdc:rate=1,tokens=" + std::to_string(tokens + 4), prompt, model);
    const bool modifier = kept.find("old") != std::string::npos || kept.find("Rome") != std::string::npos;
    const bool object = kept.find("car") != std::string::npos, verb = kept.find("bought") != std::string::npos,
               subject = kept.find("man") != std::string::npos;
    EXPECT_TRUE(!modifier || object) << kept;
    EXPECT_TRUE(!object || verb) << kept;
    EXPECT_TRUE(!verb || subject) << kept;
    EXPECT_LE(std::ssize(WordPrompt("[<s>]" + kept.substr(3)).tokens), tokens + 4) << kept;
  }
}

TEST(Stdc, KeepsToTheBudget) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const WordPrompt prompt = drawn_prompt(seed, 1 + static_cast<int64_t>(seed % 9));
    for (const std::string rate : {"0", "0.2", "0.5", "0.8", "1"}) {
      for (const std::string cost : {"information", "question"}) {
        RepeatingModel model;
        const auto made = make_prompt_compressor("stdc:rate=" + rate + ",cost=" + cost);
        ASSERT_TRUE(made.ok());
        const auto rest = (*made)->compress(prompt.view(), model, kAnyBudget);
        ASSERT_TRUE(rest.ok());
        EXPECT_TRUE(std::ranges::is_sorted(rest->kept));
        const auto free = std::ssize(prompt.tokens) - 5;  // without <s> and the four tokens of the question
        EXPECT_LE(std::ssize(rest->kept), 5 + static_cast<int64_t>(std::stod(rate) * static_cast<double>(free) + 0.5));
        EXPECT_TRUE(prompt.text_of(rest->kept).starts_with("<s>"));
      }
    }
  }
  RepeatingModel model;
  const WordPrompt alone("The old man left");  // nothing is fixed: something remains
  EXPECT_EQ(compressed_text("stdc:rate=0", alone, model), "The");
}

// "apple" is in the question; the model needs its sentence, which itself says little.
TEST(Stdc, CostsByTheQuestion) {
  RepeatingModel model;
  const WordPrompt prompt("[<s>]Plums are blue.\nAn apple fell.\nPears are green.\n\nWhat is an apple ?");
  model.costs = {{"An", 0.1}, {" apple", 1.1}, {" fell.", 0.1}};
  const std::string by_question = compressed_text("stdc:rate=0.3,cost=question", prompt, model);
  EXPECT_NE(by_question.find("An apple"), std::string::npos) << by_question;
  const std::string by_information = compressed_text("stdc:rate=0.3", prompt, model);
  EXPECT_EQ(by_information.find("An apple"), std::string::npos) << by_information;
}

TEST(Stdc, AFileOfParsesReplacesTheRules) {
  const TemporaryPolicy file({});  // its path
  // A parse that no rule would find: "dog slept" is a parenthesis.
  std::ofstream(file.path) << "(S (NP (DT A)) (PRN (NN dog) (VBD slept)) (RB there) (. .))\n";
  const auto made = make_prompt_compressor("stdc:parse=" + file.path);
  ASSERT_TRUE(made.ok());
  const auto opened = (*made)->open_file();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  RepeatingModel model;
  model.costs = {{" dog", 0.1}, {" slept", 0.1}};
  const WordPrompt prompt(kPrompt);
  EXPECT_EQ(compressed_text("stdc:rate=1,tokens=16,parse=" + file.path, prompt, model).substr(0, 12), "error: promp");
  model.files[{"stdc", file.path}] = *opened;
  EXPECT_EQ(compressed_text("stdc:rate=1,tokens=16,parse=" + file.path, prompt, model),
            "<s>The old man left quickly for Rome.\nA there.\n\nWho left ?");
  std::ofstream(file.path) << "(S (NP";
  const auto broken = (*made)->open_file();
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message, file.path + ": the parses end inside a tree: a ')' is missing");
}

// A document that is itself a parse loses its brackets and labels first.
TEST(Stdc, ADocumentMayBeAParse) {
  RepeatingModel model;
  model.costs = {{" quickly", 0.1}};
  const WordPrompt prompt(
      "[<s>](S| (NP| (DT| The|)| (JJ| old|)| (NN| man|)|)| (VP| (VBD| left|)| (ADVP| (RB| quickly|)|)|)|)\nTom is "
      "here.\n\nWho left ?");
  EXPECT_EQ(compressed_text("stdc:rate=1,tokens=15", prompt, model),
            "<s> The old man left quickly\nTom is here.\n\nWho left ?");
  EXPECT_EQ(compressed_text("stdc:rate=1,tokens=14", prompt, model),
            "<s> The old man left\nTom is here.\n\nWho left ?");
}

TEST(Stdc, Messages) {
  const auto made = make_prompt_compressor("stdc:cost=none");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "prompt stdc: cost: expected information or question, got 'none'");
  RepeatingModel model;
  EXPECT_EQ(compressed_text("stdc:rate=0.5,cost=question", drawn_prompt(3, 1200), model).substr(0, 58),
            "error: prompt stdc: cost: the prompt has 1200 constituents");
}

}  // namespace
}  // namespace millrace
