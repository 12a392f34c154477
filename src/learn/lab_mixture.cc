#include "learn/lab_mixture.h"

#include <algorithm>
#include <fstream>

namespace millrace {
namespace {

constexpr const char* kRoles[] = {"<|system|>", "<|user|>", "<|assistant|>"};
constexpr int64_t kShortest = 150;
constexpr TokenId kNewlineId = kFirstByteId + '\n';
constexpr uint64_t kExampleStream = 0x6c6162;

// Of the tokens. Prompts of most tasks grow, so their answers are a small part of them.
struct Share {
  std::string_view task;
  double share;
};
constexpr Share kShares[] = {{"needle", 0.13}, {"multidoc", 0.23},   {"arithmetic", 0.01}, {"steps", 0.07},
                             {"lists", 0.08},  {"icl", 0.09},        {"extract", 0.05},    {"summary", 0.07},
                             {"copy", 0.06},   {"dictionary", 0.07}, {"dialogue", 0.06},   {"smalltalk", 0.04}};
constexpr double kStoryShare = 0.08;
// Of drills, while prompts are short and later. A model learns early from them to find what followed a token before
// (Olsson et al., 2022, "In-context Learning and Induction Heads"), which most tasks need.
constexpr double kEarlyDrills = 0.20, kLateDrills = 0.04;
constexpr int64_t kEarlyLength = 2000;
constexpr int64_t kStoryTokens = 300;  // most of one example
constexpr float kStoryWeight = 0.5f;
// Prompts teach little (most of their words are drawn at random): one token of so many, at this weight.
constexpr double kPromptTokens = 0.2;
constexpr float kPromptWeight = 0.5f;

double share_of(std::string_view task) {
  for (const Share& one : kShares)
    if (one.task == task) return one.share;
  return 0.05;
}

}  // namespace

LabControls lab_controls(const TokenizerSpec& spec) {
  const auto size = static_cast<TokenId>(spec.tokens.size());
  return {size - 3, size - 2, size - 1};
}

std::string lab_chat_template() {
  return "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + "
         "eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
}

namespace {

TokenizerSpec with_roles(std::vector<std::string> pieces) {
  TokenizerSpec spec = vocabulary_of(pieces);
  for (const char* role : kRoles) {
    spec.tokens.emplace_back(role);
    spec.types.push_back(TokenType::control);
    spec.scores.push_back(0);
  }
  return spec;
}

}  // namespace

Result<TokenizerSpec> learn_lab_vocabulary(const std::vector<std::string>& stories, int64_t size) {
  std::vector<std::string> texts;
  size_t story_bytes = 0, task_bytes = 0;
  for (const std::string& story : stories) {
    if (story_bytes > 1'000'000) break;
    story_bytes += story.size();
    texts.push_back(story);
  }
  for (uint64_t i = 0; task_bytes < 1'500'000; ++i) {
    for (const LabTask& task : lab_tasks()) {
      const LabItem item = make_lab_item(task, 1, i, LabSplit::train, {kShortest, 1500});
      for (const LabMessage& message : item.messages) texts.push_back(message.content);
      texts.push_back(item.answer);
      task_bytes += item.prompt().size();
    }
  }
  // A digit is a token of its own, with or without a space before it: no merge has one.
  for (std::string& text : texts)
    for (char& c : text)
      if (c >= '0' && c <= '9') c = '\n';
  MILLRACE_TRY(TokenizerSpec learned, train_bpe(texts, static_cast<int>(size) - 3));
  return with_roles({learned.tokens.begin() + kFirstPieceId, learned.tokens.end()});
}

Result<void> write_lab_vocabulary(const std::string& path, const TokenizerSpec& spec) {
  std::ofstream out(path);
  for (size_t id = kFirstPieceId; id + 3 < spec.tokens.size(); ++id) out << spec.tokens[id] << '\n';
  out.flush();
  if (!out) return Error::user("cannot write the vocabulary: " + path);
  return {};
}

Result<TokenizerSpec> read_lab_vocabulary(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error::user("cannot open the vocabulary: " + path);
  std::vector<std::string> pieces;
  for (std::string line; std::getline(in, line);) pieces.push_back(line);
  return with_roles(std::move(pieces));
}

Result<TokenizerSpec> lab_vocabulary(const std::vector<std::string>& tokens) {
  if (std::ssize(tokens) > kFirstPieceId + 3) {
    TokenizerSpec spec = with_roles({tokens.begin() + kFirstPieceId, tokens.end() - 3});
    if (spec.tokens == tokens) return spec;
  }
  return Error::user("the vocabulary is not one that train-lab learned");
}

LabMixture::LabMixture(const TokenizerSpec& spec, std::vector<std::string> stories, uint64_t seed, int64_t context)
    : encoder_(spec),
      controls_(lab_controls(spec)),
      stories_(std::move(stories)),
      seed_(seed),
      context_(context),
      vocab_(std::ssize(spec.tokens)) {
  for (char digit = '0'; digit <= '9'; ++digit) digits_.push_back(encoder_.encode(std::string(1, digit)).back());
}

void LabMixture::append(const std::string& text, float weight, LabExample& to) {
  for (TokenId id : encoder_.encode(text)) {
    to.ids.push_back(id);
    to.weights.push_back(weight);
  }
}

// A share of the prompt's tokens, chosen by position. Of icl's, also the labels of the examples, which follow "->".
void LabMixture::append_prompt(const LabItem& item, const std::string& text, bool train, LabExample& to) {
  const size_t from = to.ids.size();
  append(text, 0.0f, to);
  if (!train) return;
  const bool labels = item.task == "icl";
  static constexpr char kArrow = '>';
  bool label = false;
  for (size_t i = from; i < to.ids.size(); ++i) {
    if (philox_uniform(seed_, kExampleStream + i, static_cast<uint64_t>(to.ids[i]) * 131 + text.size()) < kPromptTokens)
      to.weights[i] = kPromptWeight;
    if (!labels) continue;
    if (to.ids[i] == kNewlineId) label = false;
    if (label) to.weights[i] = 1.0f;
    const std::string piece = encoder_.decode({to.ids[i]});
    if (!piece.empty() && piece.back() == kArrow) label = true;
  }
}

LabExample LabMixture::encode(const LabItem& item, bool train) {
  LabExample out;
  const auto control = [&](TokenId id, float weight) {
    out.ids.push_back(id);
    out.weights.push_back(weight);
  };
  const auto answer = [&](const std::string& text, float weight) {
    append(text, weight, out);
    control(kEosId, weight);
  };
  control(kBosId, 0);
  for (const LabMessage& message : item.messages) {
    const bool assistant = message.role == "assistant";
    control(assistant ? controls_.assistant : message.role == "user" ? controls_.user : controls_.system, 0);
    if (assistant) {
      answer(message.content, train ? 0.3f : 0.0f);
    } else {
      append_prompt(item, message.content, train, out);
      control(kEosId, 0);
    }
  }
  control(controls_.assistant, 0);
  out.answer = std::ssize(out.ids);
  answer(item.answer, 1);
  for (size_t i = 0; train && i < item.more.size(); ++i) {
    control(controls_.user, 0);
    append(item.more[i].question, 0, out);
    control(kEosId, 0);
    control(controls_.assistant, 0);
    answer(item.more[i].answer, 1);
    if (std::ssize(out.ids) > context_) {  // leave the last ones out
      while (out.ids.back() != controls_.user) out.ids.pop_back();
      out.ids.pop_back();
      out.weights.resize(out.ids.size());
      break;
    }
  }
  if (std::ssize(out.ids) > context_) return {};
  return out;
}

// Entries of a key and a value, a few random tokens between them; then all keys again, in another order, with the
// values as the answers. Keys are of two tokens from a small pool, so that many share one, or of one.
LabExample LabMixture::drill(LabRandom& random, int64_t longest) const {
  const auto token = [&] {
    return static_cast<TokenId>(random.chance(0.3) ? digits_[static_cast<size_t>(random.below(10))]
                                                   : random.between(kFirstPieceId, vocab_ - 4));
  };
  const int64_t key = random.between(1, 2), value = random.between(1, 4), gap = random.below(4);
  const int64_t most = std::clamp<int64_t>(longest / 8 / (2 * (key + value) + gap), 4, 60);
  const int64_t entries = random.between(3, most);
  std::vector<TokenId> pool;
  for (int64_t i = 0; i < (key == 1 ? entries : 2 + entries / 2); ++i)
    pool.push_back(static_cast<TokenId>(random.between(kFirstPieceId, vocab_ - 4)));
  std::vector<std::vector<TokenId>> keys, values;
  while (std::ssize(keys) < entries) {
    std::vector<TokenId> one;
    for (int64_t i = 0; i < key; ++i) one.push_back(random.pick(pool));
    if (key == 1) one = {pool[keys.size()]};
    if (key > 1 && std::ranges::find(keys, one) != keys.end()) {
      pool.push_back(static_cast<TokenId>(random.between(kFirstPieceId, vocab_ - 4)));
      continue;
    }
    keys.push_back(std::move(one));
    values.emplace_back();
    for (int64_t i = 0; i < value; ++i) values.back().push_back(token());
  }
  LabExample out;
  out.ids = {kBosId};
  out.weights = {0};
  const auto add = [&](const std::vector<TokenId>& ids, float weight) {
    for (TokenId id : ids) {
      out.ids.push_back(id);
      out.weights.push_back(weight);
    }
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    add(keys[i], 0);
    add(values[i], 0);
    for (int64_t j = 0; j < gap; ++j) add({token()}, 0);
  }
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  random.shuffle(order);
  for (size_t i : order) {
    add(keys[i], 0);
    add(values[i], 1);
  }
  return out;
}

// As text, or as the answer to a request, with its beginning or without.
LabExample LabMixture::story(LabRandom& random) {
  LabExample out;
  const std::string& text = random.pick(stories_);
  const int64_t form = random.below(4);
  out.ids = {kBosId};
  out.weights = {0};
  if (form < 2) {
    const size_t end = std::min(text.find('.'), text.size() - 1) + 1;
    const std::string request = form == 0 ? "Tell me a story." : "Continue: " + text.substr(0, end);
    out.ids.push_back(controls_.user);
    out.weights.push_back(0);
    append(request, 0, out);
    for (TokenId id : {TokenId{kEosId}, controls_.assistant}) {
      out.ids.push_back(id);
      out.weights.push_back(0);
    }
    const size_t from = form == 0 ? 0 : std::min(text.find_first_not_of(" \n", end), text.size());
    append(text.substr(from), kStoryWeight, out);
  } else {
    append(text, kStoryWeight, out);
  }
  out.ids.push_back(kEosId);
  out.weights.push_back(kStoryWeight);
  const auto most = static_cast<size_t>(std::min(kStoryTokens, context_));
  if (out.ids.size() > most) {
    out.ids.resize(most);
    out.weights.resize(most);
  }
  return out;
}

const std::vector<double>& LabMixture::frequencies(int64_t longest) {
  if (frequencies_of_ == longest) return frequencies_;
  constexpr uint64_t kSample = 12;
  frequencies_of_ = longest;
  frequencies_.clear();
  double sum = 0;
  const auto add = [&](double share, int64_t tokens) {
    frequencies_.push_back(share * static_cast<double>(kSample) / static_cast<double>(std::max<int64_t>(1, tokens)));
    sum += frequencies_.back();
  };
  for (const LabTask& task : lab_tasks()) {
    int64_t tokens = 0;
    for (uint64_t i = 0; i < kSample; ++i)
      tokens += std::ssize(encode(make_lab_item(task, 2, i, LabSplit::train, {kShortest, longest}), true).ids);
    add(share_of(task.name), tokens);
  }
  add(stories_.empty() ? 0 : kStoryShare, kStoryTokens * 2 / 3 * static_cast<int64_t>(kSample));
  int64_t tokens = 0;
  for (uint64_t i = 0; i < kSample; ++i) {
    LabRandom random(2, i, 0);
    tokens += std::ssize(drill(random, longest).ids);
  }
  add(longest < kEarlyLength ? kEarlyDrills : kLateDrills, tokens);
  for (double& one : frequencies_) one /= sum;
  return frequencies_;
}

LabExample LabMixture::example(uint64_t index, int64_t longest) {
  const std::vector<double>& shares = frequencies(longest);
  LabRandom random(seed_ ^ kExampleStream, index, 0);
  double left = random.uniform();
  size_t at = 0;
  while (at + 1 < shares.size() && left >= shares[at]) left -= shares[at++];
  if (at == lab_tasks().size()) return story(random);
  if (at > lab_tasks().size()) return drill(random, longest);
  return encode(make_lab_item(lab_tasks()[at], seed_, index, LabSplit::train, {kShortest, longest}), true);
}

}  // namespace millrace
