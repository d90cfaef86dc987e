#include "operators/checks.h"

namespace mkernel::detail {

Status refuse(const std::string& what, int64_t value, const std::string& allowed) {
  return Status(Code::kInvalidArgument, what + " = " + std::to_string(value) + ": " + allowed);
}

Status check_extents(int64_t m, int64_t n, int64_t k) {
  const std::string most = " to " + std::to_string(kMaxExtent) + " is allowed";
  if (m < 0 || m > kMaxExtent) return refuse("m", m, "0" + most);
  if (n < 1 || n > kMaxExtent) return refuse("n", n, "1" + most);
  if (k < 1 || k > kMaxExtent) return refuse("k", k, "1" + most);
  return Status::ok();
}

Status check_blocks(int blocks, const MachineShape& machine) {
  const auto max_blocks = static_cast<int>(machine.max_blocks);
  if (blocks < 0 || blocks > max_blocks)
    return refuse("blocks", blocks, "0 (plan chooses) to " + std::to_string(max_blocks));
  return Status::ok();
}

Status check_view(const char* name, const Matrix& view, int64_t rows, int64_t cols,
                  uint64_t element_bytes) {
  const std::string who(name);
  if (view.rows != rows)
    return refuse(who + ".rows", view.rows, std::to_string(rows) + " expected");
  if (view.cols != cols)
    return refuse(who + ".cols", view.cols, std::to_string(cols) + " expected");
  constexpr int64_t kMaxLd = int64_t{1} << 32;  // then no offset overflows 64 bits
  if (view.ld > kMaxLd) return refuse(who + ".ld", view.ld, "at most " + std::to_string(kMaxLd));
  if (view.ld < cols) return refuse(who + ".ld", view.ld, "at least " + std::to_string(cols));
  if (view.data == nullptr && rows > 0)
    return Status(Code::kInvalidArgument, who + ".data is null: device memory expected");
  if (reinterpret_cast<uintptr_t>(view.data) % element_bytes != 0)
    return Status(Code::kInvalidArgument, who + ".data is not aligned to an element of " +
                                              std::to_string(element_bytes) + " bytes");
  return Status::ok();
}

Status take_operands(LaunchWork& op, const ProductShape& shape, const Matrix& a, const Matrix& b,
                     const Matrix& c) {
  const bool kn = op.b_layout == BLayout::kKN;
  MK_RETURN_IF_ERROR(check_view("a", a, shape.rows_a, shape.k));
  MK_RETURN_IF_ERROR(check_view("b", b, kn ? shape.k : shape.n, kn ? shape.n : shape.k));
  MK_RETURN_IF_ERROR(check_view("c", c, shape.rows_c, shape.n, shape.c_element_bytes));
  op.a = static_cast<const char*>(a.data);
  op.a_pitch = pitch_of(a);
  op.b = static_cast<const char*>(b.data);
  op.b_pitch = pitch_of(b);
  op.c = static_cast<char*>(c.data);
  op.c_pitch = pitch_of(c, shape.c_element_bytes);
  return Status::ok();
}

void place(LaunchWork& op, const Rank& rank) {
  op.cluster = rank.cluster().shape();
  op.rank = rank.rank();
  op.node = op.cluster.node_of(op.rank);
  op.gpu = op.cluster.gpu_of(op.rank);
}

void attach(LaunchWork& op, Rank& rank, const PlanSpace& space) {
  Cluster& cluster = rank.cluster();
  const PlanRank& mine = space.of(rank.rank());
  op.own_slots = mine.region->data;
  op.peer_slots = mine.peer_slots;
  op.peer_flags = mine.peer_flags;
  op.network_address = mine.region->address;
  op.state = mine.state;
  op.queue = cluster.queue(rank.rank());
  op.dog = cluster.watchdog(rank.rank());
}

}  // namespace mkernel::detail
