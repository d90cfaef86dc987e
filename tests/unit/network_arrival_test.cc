#include <gtest/gtest.h>

#include "core/sync.h"
#include "network/arrival.h"

namespace mkernel {
namespace {

constexpr LinkTraits kInOrderLink{.in_order = true, .immediate_bits = 0, .max_in_flight = 16};
constexpr LinkTraits kUnorderedLink{.in_order = false, .immediate_bits = 32, .max_in_flight = 16};

ResolvedEpoch resolve(uint32_t current, uint32_t epoch) {
  return resolve_epoch(current, decode_immediate(encode_immediate(0, epoch)).epoch_bits);
}

constexpr uint32_t kHalf = 1u << (kEpochBits - 1);  // of the epochs that can be told apart

TEST(Arrival, ImmediateNamesEveryFlag) {
  for (const uint32_t flag : {0u, 1u, 0x5555u, kMaxFlags - 1}) {
    const Immediate i = decode_immediate(encode_immediate(flag, 0xffffffff));
    EXPECT_EQ(i.flag, flag);
    EXPECT_EQ(i.epoch_bits, (1u << kEpochBits) - 1);
  }
}

TEST(Arrival, EpochIsRestoredFromItsLowBitsUpTo2047Ahead) {
  for (const uint32_t current : {0u, 1u, 2048u, 0x7ffffff0u, 0x80000000u, 0xfffff000u, 0xffffffffu})
    for (uint32_t ahead = 1; ahead < kHalf; ++ahead) {
      const ResolvedEpoch r = resolve(current, current + ahead);
      ASSERT_EQ(r.epoch, current + ahead);
      ASSERT_FALSE(r.stale);
    }
}

TEST(Arrival, EpochsCrossTheWrap) {
  EXPECT_EQ(resolve(0xffffffff, 0).epoch, 0u);
  EXPECT_FALSE(resolve(0xffffffff, 0).stale);
  EXPECT_EQ(resolve(0, 0xffffffff).epoch, 0xffffffffu);
  EXPECT_TRUE(resolve(0, 0xffffffff).stale);
}

TEST(Arrival, LateImmediateOfAnOlderLaunchIsStale) {
  for (const uint32_t current : {5u, 4096u, 0u, 0xfffffffeu})
    for (uint32_t behind = 1; behind <= kHalf; ++behind) {
      const ResolvedEpoch r = resolve(current, current - behind);
      ASSERT_TRUE(r.stale) << current << " - " << behind;
      ASSERT_EQ(r.epoch, current - behind);
    }
}

TEST(Arrival, RepeatedImmediateIsStale) {
  for (const uint32_t current : {0u, 7u, 0xffffffffu}) EXPECT_TRUE(resolve(current, current).stale);
}

TEST(Arrival, EpochOutOfRangeNeverSatisfiesItsWaitEarly) {
  // Beyond half the range an immediate may be dropped or read as an older epoch; not as a newer
  // one.
  for (uint32_t ahead = kHalf; ahead < 10 * kHalf; ++ahead) {
    const ResolvedEpoch r = resolve(100, 100 + ahead);
    ASSERT_TRUE(r.stale || !reached(r.epoch, 100 + ahead));
  }
}

TEST(Arrival, InOrderLinkGetsTheFlagBehindTheData) {
  const ChunkWrites chunk = writes_of_chunk(
      arrival_method(kInOrderLink), {.peer = 3, .bytes = 64, .flag = 9, .value = 5, .id = 20});
  ASSERT_EQ(chunk.count, 2u);
  EXPECT_EQ(chunk.count, max_writes_per_chunk(ArrivalMethod::kFlagBehindData));
  EXPECT_EQ(chunk.writes[0].kind, Write::Kind::kData);
  EXPECT_EQ(chunk.writes[0].id, 20u);
  EXPECT_EQ(chunk.writes[1].kind, Write::Kind::kFlag);
  EXPECT_EQ(chunk.writes[1].peer, 3u);
  EXPECT_EQ(chunk.writes[1].flag, 9u);
  EXPECT_EQ(chunk.writes[1].value, 5u);
  EXPECT_EQ(chunk.writes[1].id, 21u);
}

TEST(Arrival, UnorderedLinkNeverGetsAFlagWrite) {
  for (const uint64_t bytes : {0, 64}) {
    const ChunkWrites chunk = writes_of_chunk(
        arrival_method(kUnorderedLink), {.bytes = bytes, .flag = 9, .value = 0x12345, .id = 20});
    ASSERT_EQ(chunk.count, 1u);
    EXPECT_EQ(chunk.writes[0].kind, Write::Kind::kDataImmediate);
    EXPECT_EQ(chunk.writes[0].value, encode_immediate(9, 0x12345));
    EXPECT_EQ(chunk.writes[0].bytes, bytes);
  }
}

TEST(Arrival, EmptyChunkOnAnInOrderLinkIsItsFlagAlone) {
  const ChunkWrites chunk = writes_of_chunk(arrival_method(kInOrderLink), {.flag = 9, .id = 20});
  ASSERT_EQ(chunk.count, 1u);
  EXPECT_EQ(chunk.writes[0].kind, Write::Kind::kFlag);
  EXPECT_EQ(chunk.writes[0].id, 20u);
}

TEST(Arrival, LinkThatCannotTellArrivalIsRefused) {
  LinkTraits narrow = kUnorderedLink;
  narrow.immediate_bits = 31;
  LinkTraits shallow = kInOrderLink;
  shallow.max_in_flight = 1;
  EXPECT_TRUE(check_arrival(kInOrderLink, kMaxFlags));
  EXPECT_TRUE(check_arrival(kUnorderedLink, kMaxFlags));
  EXPECT_EQ(check_arrival(kUnorderedLink, kMaxFlags + 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_arrival(narrow, 1).code(), Code::kUnsupported);
  EXPECT_NE(check_arrival(narrow, 1).message().find("31"), std::string::npos);
  EXPECT_EQ(check_arrival(shallow, 1).code(), Code::kUnsupported);
}

}  // namespace
}  // namespace mkernel
