// Every metric's name, unit and meaning, in one list. Names: <module>_<what>_<unit>.
#pragma once

#include <string_view>

namespace yard::metric {

// HTTP server. Bytes: request heads and bodies in, response bodies out.
inline constexpr std::string_view kHttpServerConnections = "http_server_connections";
inline constexpr std::string_view kHttpServerRefusedConnections = "http_server_refused_connections";
inline constexpr std::string_view kHttpServerRequests = "http_server_requests";
inline constexpr std::string_view kHttpServerClientErrors = "http_server_client_errors";  // 4xx
inline constexpr std::string_view kHttpServerServerErrors = "http_server_server_errors";  // 5xx
inline constexpr std::string_view kHttpServerReceivedBytes = "http_server_received_bytes";
inline constexpr std::string_view kHttpServerSentBytes = "http_server_sent_bytes";

// Training, one value per optimiser step.
inline constexpr std::string_view kTrainLoss = "train_loss";           // mean over the global batch
inline constexpr std::string_view kTrainEvalLoss = "train_eval_loss";  // held-out, fixed noise
inline constexpr std::string_view kTrainLearningRate = "train_learning_rate";
inline constexpr std::string_view kTrainGradientNorm = "train_gradient_norm";  // before clipping
// wall time of the step
inline constexpr std::string_view kTrainStepSeconds = "train_step_seconds";
// all ranks together
inline constexpr std::string_view kTrainSamplesPerSecond = "train_samples_per_second";
inline constexpr std::string_view kTrainDataWaitSeconds = "train_data_wait_seconds";
inline constexpr std::string_view kTrainCommWaitSeconds = "train_comm_wait_seconds";
inline constexpr std::string_view kTrainCheckpointSeconds = "train_checkpoint_seconds";
// compute / wall, 0..1
inline constexpr std::string_view kTrainUtilisationRatio = "train_utilisation_ratio";

// Loader.
inline constexpr std::string_view kLoaderSamples = "loader_samples";
inline constexpr std::string_view kLoaderSkippedSamples = "loader_skipped_samples";
inline constexpr std::string_view kLoaderReadBytes = "loader_read_bytes";
inline constexpr std::string_view kLoaderConsumerWaitSeconds = "loader_consumer_wait_seconds";
inline constexpr std::string_view kLoaderDecodeSeconds = "loader_decode_seconds";
inline constexpr std::string_view kLoaderStoreRetries = "loader_store_retries";

// Mount.
inline constexpr std::string_view kMountOpens = "mount_opens";
inline constexpr std::string_view kMountReads = "mount_reads";           // that reached the daemon
inline constexpr std::string_view kMountReadBytes = "mount_read_bytes";  // handed to the kernel
inline constexpr std::string_view kMountLateReads =
    "mount_late_reads";  // had to wait for the store
inline constexpr std::string_view kMountReadWaitSeconds =
    "mount_read_wait_seconds";  // of all readers
inline constexpr std::string_view kMountFetchedBytes =
    "mount_fetched_bytes";  // bodies, from the store
inline constexpr std::string_view kMountObjectRequests = "mount_object_requests";
inline constexpr std::string_view kMountListRequests = "mount_list_requests";
// Fetched ahead and dropped unread.
inline constexpr std::string_view kMountUnusedBytes = "mount_unused_bytes";
// Times that a request was made again because the store could not be reached.
inline constexpr std::string_view kMountStoreRetries = "mount_store_retries";
inline constexpr std::string_view kMountChangedObjects = "mount_changed_objects";
inline constexpr std::string_view kMountCacheReadBytes = "mount_cache_read_bytes";
inline constexpr std::string_view kMountCacheBadBlocks = "mount_cache_bad_blocks";
inline constexpr std::string_view kMountPassthroughOpens = "mount_passthrough_opens";

// Collective.
inline constexpr std::string_view kCollectiveOperations = "collective_operations";
inline constexpr std::string_view kCollectiveBytes = "collective_bytes";
inline constexpr std::string_view kCollectiveWaitSeconds = "collective_wait_seconds";

// Sharded checkpoints, of one rank.
inline constexpr std::string_view kCheckpointSaves = "checkpoint_saves";
inline constexpr std::string_view kCheckpointFailedSaves = "checkpoint_failed_saves";
inline constexpr std::string_view kCheckpointCopiedBytes = "checkpoint_copied_bytes";
// Training stood still, for the copy.
inline constexpr std::string_view kCheckpointBlockedSeconds = "checkpoint_blocked_seconds";
// Saves went on beside it.
inline constexpr std::string_view kCheckpointWriteSeconds = "checkpoint_write_seconds";

// Host supervisor.
inline constexpr std::string_view kHostRankRestarts = "host_rank_restarts";
inline constexpr std::string_view kHostRecoverySeconds = "host_recovery_seconds";

}  // namespace yard::metric
