#include "speculate/drafter.h"

#include <algorithm>

namespace millrace {
namespace {

template <typename Visit>
void visit_sizes(const Drafter& drafter, Visit visit) {
  for (const TextPart& part : drafter.texts) visit(part.sizes);
  if (drafter.model) visit(drafter.model->sizes);
}

}  // namespace

int64_t Drafter::longest() const {
  int64_t longest = 0;
  visit_sizes(*this, [&](const DraftSizes& sizes) { longest = std::max(longest, sizes.longest); });
  return longest;
}

bool Drafter::trees() const {
  bool trees = false;
  visit_sizes(*this, [&](const DraftSizes& sizes) { trees |= sizes.trees; });
  return trees;
}

int64_t Drafter::stream_bytes() const {
  int64_t bytes = 0;
  visit_sizes(*this, [&](const DraftSizes& sizes) { bytes += sizes.stream_bytes; });
  return bytes;
}

int64_t Drafter::shared_bytes(int64_t vocab) const {
  int64_t bytes = 0;
  visit_sizes(*this, [&](const DraftSizes& sizes) { bytes += sizes.shared_bytes + vocab * sizes.vocab_bytes; });
  return bytes;
}

int64_t Drafter::learns() const {
  int64_t most = 0;
  for (const TextPart& part : texts)
    if (part.learner) most = std::max(most, part.learner->learns());
  return most;
}

Result<void> Drafter::check(int64_t vocab, std::span<const std::string> tokens) const {
  for (const TextPart& part : texts)
    MILLRACE_TRY_VOID(part.drafter->check(tokens.empty() ? vocab : std::ssize(tokens), tokens));
  return {};
}

void Drafter::begin(int64_t vocab) {
  for (TextPart& part : texts) part.drafter->begin(vocab);
}

std::unique_ptr<Drafter> drafter_of(TextPart part) {
  auto drafter = std::make_unique<Drafter>();
  drafter->texts.push_back(std::move(part));
  return drafter;
}

std::unique_ptr<Drafter> drafter_of(ModelPart part) {
  auto drafter = std::make_unique<Drafter>();
  drafter->model = std::move(part);
  return drafter;
}

}  // namespace millrace
