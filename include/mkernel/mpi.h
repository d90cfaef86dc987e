// Rendezvous of the processes of an MPI program: rank, world, and an address, a run id and a secret
// that rank 0 chooses and MPI hands round. Compiled by the user, against the user's MPI; mkernel
// itself needs none, and after this call uses it for nothing.
#pragma once
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
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

inline Status mpi_failed(const char* call, int error) {
  return {Code::kInternal, std::string(call) + " failed with error " + std::to_string(error)};
}

}  // namespace detail

/// Options with which every rank of `comm` can join, as rank and world of `comm`. To be changed in
/// what is not set here, such as limits. Collective over `comm`; one call is one run.
/// host:    name of this rank's host for ranks of other hosts; what rank 0 gives counts. Empty:
///          127.0.0.1 if all ranks share a host, else what MPI calls its processor.
/// Errors:  unavailable if rank 0 cannot listen, on all ranks; internal if MPI fails.
inline Result<RendezvousOptions> rendezvous_of_mpi(MPI_Comm comm, const std::string& host = "") {
  int rank = 0, world = 0;
  if (int error = MPI_Comm_rank(comm, &rank); error != MPI_SUCCESS) {
    return detail::mpi_failed("MPI_Comm_rank", error);
  }
  if (int error = MPI_Comm_size(comm, &world); error != MPI_SUCCESS) {
    return detail::mpi_failed("MPI_Comm_size", error);
  }
  MPI_Comm local = MPI_COMM_NULL;
  int local_world = 0;
  if (int error = MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
      error != MPI_SUCCESS) {
    return detail::mpi_failed("MPI_Comm_split_type", error);
  }
  MPI_Comm_size(local, &local_world);
  MPI_Comm_free(&local);

  RendezvousOptions options;
  options.rank = static_cast<uint32_t>(rank);
  options.world = static_cast<uint32_t>(world);
  detail::MpiInvitation invitation{};
  if (rank == 0) {
    std::string name = host;
    if (name.empty() && local_world == world) name = "127.0.0.1";
    if (name.empty()) {
      std::array<char, MPI_MAX_PROCESSOR_NAME + 1> processor{};
      int length = 0;
      MPI_Get_processor_name(processor.data(), &length);
      name.assign(processor.data(), static_cast<size_t>(length));
    }
    if (name.find(':') != std::string::npos) name = "[" + name + "]";
    Result<std::shared_ptr<Listener>> listener = Listener::open(name + ":0");
    if (listener) {
      options.listener = *listener;
      detail::copy_text((*listener)->address(), invitation.address);
      detail::copy_text(detail::random_hex(), invitation.run_id);
      detail::copy_text(detail::random_hex(), invitation.secret);
    } else {
      detail::copy_text(listener.status().message(), invitation.why);
    }
  }
  if (int error = MPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, 0, comm);
      error != MPI_SUCCESS) {
    return detail::mpi_failed("MPI_Bcast", error);
  }
  options.address = invitation.address.data();
  options.run_id = invitation.run_id.data();
  options.secret = invitation.secret.data();
  if (options.address.empty()) return Status(Code::kUnavailable, invitation.why.data());
  return options;
}

}  // namespace mkernel
