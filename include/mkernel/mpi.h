// Rendezvous of the processes of an MPI program: rank, world, and an address, a run id and a secret
// that rank 0 chooses and MPI hands round. Compiled by the user, against the user's MPI; mkernel
// itself needs none, and after this call uses it for nothing.
#pragma once
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

namespace mkernel {
namespace detail {

/// What rank 0 tells the others; of fixed length, so that one broadcast does.
struct MpiInvitation {
  std::array<char, 320> address;  // empty: rank 0 has failed, and `why` says why
  std::array<char, 64> run_id, secret;
  std::array<char, 1024> why;
};

template <size_t N>
void copy_text(const std::string& text, std::array<char, N>& to) {
  to.fill('\0');
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

inline std::string random_hex() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 32; ++i) text += "0123456789abcdef"[random() % 16];
  return text;
}

inline Status check_mpi(const char* call, int error) {
  if (error == MPI_SUCCESS) return Status::ok();
  return {Code::kInternal, std::string(call) + " failed with error " + std::to_string(error)};
}

/// Whether all ranks of `comm` share one host.
inline Result<bool> is_on_one_host(MPI_Comm comm, int rank, int world) {
  MPI_Comm local = MPI_COMM_NULL;
  int local_world = 0;
  MK_RETURN_IF_ERROR(
      check_mpi("MPI_Comm_split_type",
                MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local)));
  MK_RETURN_IF_ERROR(check_mpi("MPI_Comm_size", MPI_Comm_size(local, &local_world)));
  MK_RETURN_IF_ERROR(check_mpi("MPI_Comm_free", MPI_Comm_free(&local)));
  return local_world == world;
}

/// By which name other hosts know this one, as far as MPI knows.
inline std::string processor_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME + 1> name{};
  int length = 0;
  (void)MPI_Get_processor_name(name.data(), &length);
  return name.data();
}

/// Rank 0's part: an open port, and what the others must know of it.
inline std::shared_ptr<Listener> invite(const std::string& host, MpiInvitation& invitation) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  Result<std::shared_ptr<Listener>> listener =
      Listener::open((is_ipv6 ? "[" + host + "]" : host) + ":0");
  if (!listener) {
    copy_text(listener.status().message(), invitation.why);
    return nullptr;
  }
  copy_text((*listener)->address(), invitation.address);
  copy_text(random_hex(), invitation.run_id);
  copy_text(random_hex(), invitation.secret);
  return *listener;
}

}  // namespace detail

/// Options with which every rank of `comm` can join, as rank and world of `comm`. To be changed in
/// what is not set here, such as limits. Collective over `comm`; one call is good for one group.
/// host:    name of this rank's host for ranks of other hosts; what rank 0 gives counts. Empty:
///          127.0.0.1 if all ranks share a host, else what MPI calls its processor.
/// Errors:  unavailable if rank 0 cannot listen, on all ranks; internal if MPI fails.
inline Result<RendezvousOptions> rendezvous_of_mpi(MPI_Comm comm, const std::string& host = "") {
  int rank = 0, world = 0;
  MK_RETURN_IF_ERROR(detail::check_mpi("MPI_Comm_rank", MPI_Comm_rank(comm, &rank)));
  MK_RETURN_IF_ERROR(detail::check_mpi("MPI_Comm_size", MPI_Comm_size(comm, &world)));
  Result<bool> on_one_host = detail::is_on_one_host(comm, rank, world);
  if (!on_one_host) return on_one_host.status();

  RendezvousOptions options;
  options.rank = static_cast<uint32_t>(rank);
  options.world = static_cast<uint32_t>(world);
  detail::MpiInvitation invitation{};
  if (rank == 0) {
    const std::string known_as = *on_one_host ? "127.0.0.1" : detail::processor_name();
    options.listener = detail::invite(host.empty() ? known_as : host, invitation);
  }
  MK_RETURN_IF_ERROR(
      detail::check_mpi("MPI_Bcast", MPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, 0, comm)));
  options.address = invitation.address.data();
  options.run_id = invitation.run_id.data();
  options.secret = invitation.secret.data();
  if (options.address.empty()) return Status(Code::kUnavailable, invitation.why.data());
  return options;
}

}  // namespace mkernel
