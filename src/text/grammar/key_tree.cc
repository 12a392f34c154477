#include "text/grammar/key_tree.h"

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

struct Node {
  size_t first = 0, last = 0;    // range of its keys in sorted order
  size_t depth = 0;              // bytes read
  int32_t base = 0;              // first of its states, one for each of `members`
  std::vector<int32_t> members;  // members with these keys, ascending
};

}  // namespace

Result<KeyTree> make_key_tree(std::span<const std::string> keys, std::string_view counts, CompileBudget* budget) {
  const size_t n = keys.size();
  KeyTree tree;
  tree.ends.assign(n, -1);
  tree.states = static_cast<int32_t>(n);
  BudgetShare share(budget);
  std::vector<int32_t> order(n), limit(n);  // limit: the last member allowed where this is the first
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int32_t member) -> std::string_view { return keys[static_cast<size_t>(member)]; });
  for (size_t i = n; i-- > 0;)
    limit[i] = counts[i] == '1' ? static_cast<int32_t>(i) : i + 1 < n ? limit[i + 1] : static_cast<int32_t>(i);

  std::vector<Node> stack(1);
  stack[0].last = n;
  stack[0].members.resize(n);
  std::iota(stack[0].members.begin(), stack[0].members.end(), 0);
  while (!stack.empty()) {
    const Node node = std::move(stack.back());
    stack.pop_back();
    const auto byte_of = [&](size_t at) {
      return static_cast<uint8_t>(keys[static_cast<size_t>(order[at])][node.depth]);
    };
    if (node.last > node.first && keys[static_cast<size_t>(order[node.first])].size() == node.depth) {
      if (node.last - node.first > 1) return Error::internal("key tree: a key is a prefix of another");
      tree.ends[static_cast<size_t>(node.members[0])] = node.base;
      continue;
    }
    for (size_t first = node.first; first < node.last;) {
      Node child{first, first, node.depth + 1, tree.states, {}};
      const uint8_t byte = byte_of(first);
      while (child.last < node.last && byte_of(child.last) == byte) child.members.push_back(order[child.last++]);
      std::ranges::sort(child.members);
      tree.states += static_cast<int32_t>(child.members.size());
      for (size_t p = 0, to = 0; p < node.members.size(); ++p) {
        const int32_t from = node.members[p];
        while (to < child.members.size() && child.members[to] < from) ++to;
        if (to == child.members.size()) break;
        if (child.members[to] > limit[static_cast<size_t>(from)]) continue;
        tree.edges.push_back({node.base + static_cast<int32_t>(p), child.base + static_cast<int32_t>(to), byte});
      }
      MILLRACE_TRY_VOID(share.check(static_cast<int64_t>(node.members.size() + child.members.size())));
      MILLRACE_TRY_VOID(share.resize(static_cast<int64_t>((tree.edges.capacity() * sizeof(KeyTree::Edge)) * 3 / 2 +
                                                          (stack.size() + 4 * n) * sizeof(Node))));
      first = child.last;
      stack.push_back(std::move(child));
    }
  }
  return tree;
}

}  // namespace millrace
