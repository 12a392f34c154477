#include "kv/transfer/block_frame.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "kv/transfer/block_ticket.h"

namespace millrace {
namespace {

using FrameKind = BlockFrame::Kind;

constexpr StoreIdentity kFrameIdentity{7, 9};

std::string frame_bytes(FrameKind kind, std::string_view body) {
  std::string out;
  if (BlockFrame::has_image(kind)) {
    encode_image_head(kind, kFrameIdentity, {1, 2}, body.size(), out);
    return out.append(body);
  }
  encode_frame({kind, 5, kFrameIdentity, {1, 2}, body}, out);
  return out;
}

TEST(BlockFrames, AreReadAsWrittenInPartsOfAnySize) {
  const std::string image(300, 'x');
  const std::string all = frame_bytes(FrameKind::ask, "") + frame_bytes(FrameKind::refused, "why") +
                          frame_bytes(FrameKind::put, image) + frame_bytes(FrameKind::done, "");
  for (const size_t part : {1u, 7u, 64u, 100'000u}) {
    BlockFrameReader reader(300);
    std::vector<FrameKind> kinds;
    for (size_t at = 0; at < all.size(); at += part) {
      reader.push(std::string_view(all).substr(at, part));
      while (const auto frame = reader.next()) {
        kinds.push_back(frame->kind);
        EXPECT_EQ(frame->identity, kFrameIdentity);
        EXPECT_EQ(frame->key, (PrefixKey{1, 2}));
        if (frame->kind == FrameKind::refused) {
          EXPECT_EQ(frame->body, "why");
        }
        if (frame->kind == FrameKind::put) {
          EXPECT_EQ(frame->body, image);
        }
        if (frame->kind == FrameKind::ask) {
          EXPECT_EQ(frame->lease, 5u);
        }
      }
    }
    EXPECT_EQ(kinds, (std::vector{FrameKind::ask, FrameKind::refused, FrameKind::put, FrameKind::done}));
    EXPECT_FALSE(reader.broken());
    EXPECT_EQ(reader.held_bytes(), 0u);
  }
}

TEST(BlockFrames, EveryDamagedBitOfHeadAndTextIsFound) {
  const std::string good = frame_bytes(FrameKind::refused, "why");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    BlockFrameReader reader(300);
    reader.push(bad);
    EXPECT_FALSE(reader.next()) << bit;
  }
}

TEST(BlockFrames, ALengthIsCheckedBeforeAnythingIsWaitedFor) {
  std::string head;
  encode_image_head(FrameKind::put, kFrameIdentity, {}, 301, head);
  BlockFrameReader reader(300);
  reader.push(head);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.broken());
  head.clear();
  encode_image_head(FrameKind::put, kFrameIdentity, {}, ~uint64_t{0}, head);
  BlockFrameReader longest(300);
  longest.push(head);
  EXPECT_FALSE(longest.next());
  EXPECT_TRUE(longest.broken());
  BlockFrameReader text(300);
  text.push(frame_bytes(FrameKind::refused, std::string(BlockFrame::kMaxText + 1, 'w')));
  EXPECT_FALSE(text.next());
  EXPECT_TRUE(text.broken());
}

TEST(BlockFrames, ATruncatedFrameIsNone) {
  const std::string good = frame_bytes(FrameKind::image, std::string(100, 'i'));
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    BlockFrameReader reader(100);
    reader.push(std::string_view(good).substr(0, bytes));
    EXPECT_FALSE(reader.next()) << bytes;
    EXPECT_FALSE(reader.broken()) << bytes;
  }
}

TEST(BlockFrames, ARangeLiesInTheMemory) {
  EXPECT_TRUE(decode_range(encode_range({100, 50}), 50, 150));
  EXPECT_FALSE(decode_range(encode_range({101, 50}), 50, 150));
  EXPECT_FALSE(decode_range(encode_range({100, 49}), 50, 150)) << "not a whole image";
  EXPECT_FALSE(decode_range(encode_range({0, 200}), 200, 150));
  EXPECT_FALSE(decode_range(encode_range({~uint64_t{0} - 10, 50}), 50, 150)) << "the sum would overflow";
  EXPECT_FALSE(decode_range("short", 50, 150));
}

TEST(BlockTickets, AreReadAsWritten) {
  for (const char* host : {"10.0.0.7", "node.example", "::1"}) {
    const BlockTicket ticket{host, 40123, 0xabcdef0123456789, {0x11, 0x22}, 118};
    const auto read = BlockTicket::parse(ticket.text());
    ASSERT_TRUE(read) << ticket.text();
    EXPECT_EQ(read->host, host);
    EXPECT_EQ(read->port, 40123);
    EXPECT_EQ(read->lease, ticket.lease);
    EXPECT_EQ(read->key, ticket.key);
    EXPECT_EQ(read->blocks, 118);
  }
}

TEST(BlockTickets, OthersAreRefused) {
  const std::string good = BlockTicket{"a", 1, 2, {3, 4}, 5}.text();
  EXPECT_TRUE(BlockTicket::parse(good));
  for (const std::string& bad :
       {std::string(), good + ", more=1", good.substr(0, good.size() - 1) + "-1", "x" + good, good.substr(5),
        std::string("from=a:70000, lease=1, key=00000000000000000000000000000001, blocks=1"),
        std::string("from=:1, lease=1, key=00000000000000000000000000000001, blocks=1"),
        std::string("from=a/b:1, lease=1, key=00000000000000000000000000000001, blocks=1"),
        std::string("from=a:1, lease=g, key=00000000000000000000000000000001, blocks=1"),
        std::string("from=a:1, lease=1, key=01, blocks=1")})
    EXPECT_FALSE(BlockTicket::parse(bad)) << bad;
}

}  // namespace
}  // namespace millrace
