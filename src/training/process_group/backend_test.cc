#include "process_group/backend.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "process_group/testing/rank_threads.h"

namespace yard::process_group {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using Backend = c10::intrusive_ptr<YardBackend>;
using Tensors = std::vector<Tensor>;
using Lists = std::vector<Tensors>;

void with_ranks(int size, const std::function<void(YardBackend&, int)>& body,
                std::chrono::milliseconds timeout = 60s) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  run_ranks(size, [&](int rank) {
    auto backend = YardBackend::create(
        store, {.place = {.rank = rank, .world_size = size, .timeout = timeout}}, StopToken());
    ASSERT_TRUE(backend) << backend.error().message;
    body(**backend, rank);
  });
}

// What the work's failure says.
std::string failure_of(const c10::intrusive_ptr<c10d::Work>& work) {
  try {
    work->wait(kNoTimeout);
  } catch (const c10::DistBackendError& e) {
    return e.what_without_backtrace();
  }
  return "";
}

void sum(YardBackend& backend, Tensor tensor) {
  Tensors tensors{std::move(tensor)};
  backend.allreduce(tensors, {})->wait();
}

TEST(BackendTest, AFutureHoldsTheTensorsAndRunsItsCallbacks) {
  with_ranks(2, [](YardBackend& backend, int rank) {
    Tensors tensors{at::full({4}, rank + 1.0)};
    auto work = backend.allreduce(tensors, {});
    std::promise<float> seen;
    work->getFuture()->addCallback([&](c10::ivalue::Future& future) {
      seen.set_value(future.value().toTensorVector()[0][3].item<float>());
    });
    EXPECT_EQ(seen.get_future().get(), 3);
    EXPECT_TRUE(work->wait());
    EXPECT_TRUE(work->isCompleted() && work->isSuccess());
    EXPECT_EQ(work->result()[0].data_ptr(), tensors[0].data_ptr());
  });
}

TEST(BackendTest, ACallbackMayIssueAndWait) {
  with_ranks(2, [](YardBackend& backend, int) {
    Tensors tensors{at::ones({4})};
    auto work = backend.allreduce(tensors, {});
    std::promise<void> done;
    work->getFuture()->addCallback([&](c10::ivalue::Future&) {
      EXPECT_TRUE(work->wait());
      sum(backend, tensors[0]);
      done.set_value();
    });
    done.get_future().wait();
    EXPECT_EQ(tensors[0][0].item<float>(), 4);
  });
}

TEST(BackendTest, AWorkThatIsDroppedIsFinishedAllTheSame) {
  with_ranks(2, [](YardBackend& backend, int) {
    Tensor tensor = at::ones({3, 2}).t();  // needs its values copied back at the end
    Tensors tensors{tensor};
    auto future = backend.allreduce(tensors, {})->getFuture();
    (void)backend.allreduce(tensors, {});
    future->wait();
    sum(backend, at::ones({1}));
    backend.shutdown();  // ends the thread that finishes it
    EXPECT_GE(tensor[0][0].item<float>(), 2);
  });
}

TEST(BackendTest, AMismatchFailsOnAllRanksAndNamesBothCalls) {
  with_ranks(2, [](YardBackend& backend, int rank) {
    Tensors tensors{at::ones({rank + 1})};
    const std::string failure = failure_of(backend.allreduce(tensors, {}));
    EXPECT_NE(failure.find("4 bytes"), std::string::npos) << failure;
    EXPECT_NE(failure.find("8 bytes"), std::string::npos) << failure;
    EXPECT_NE(failure.find("(on "), std::string::npos) << failure;
    EXPECT_EQ(backend.getError(), c10d::ErrorType::COMM_ERROR);
    EXPECT_NE(failure_of(backend.barrier({})), "");  // the group has failed for good
  });
}

TEST(BackendTest, AFailureReachesTheFuture) {
  with_ranks(2, [](YardBackend& backend, int rank) {
    if (rank == 1) return backend.abort();
    Tensors tensors{at::ones({4})};
    auto work = backend.allreduce(tensors, {});
    auto future = work->getFuture();
    future->wait();
    EXPECT_TRUE(future->hasError());
    EXPECT_NE(future->tryRetrieveErrorMessage().find("rank 1"), std::string::npos);
    EXPECT_TRUE(work->isCompleted());
    EXPECT_FALSE(work->isSuccess());
    EXPECT_NE(work->exception(), nullptr);
  });
}

TEST(BackendTest, AWaitOfItsOwnLengthEndsAloneAndTheOperationGoesOn) {
  std::promise<void> waited;
  auto has_waited = waited.get_future();
  with_ranks(2, [&](YardBackend& backend, int rank) {
    Tensors tensors{at::ones({4})};
    if (rank == 1) {
      has_waited.wait();
      EXPECT_TRUE(backend.allreduce(tensors, {})->wait());
      return;
    }
    auto work = backend.allreduce(tensors, {});
    EXPECT_THROW(work->wait(1ms), c10::DistBackendError);
    waited.set_value();
    EXPECT_TRUE(work->wait(60s));
    EXPECT_EQ(tensors[0][0].item<float>(), 2);
  });
}

TEST(BackendTest, AnOperationsOwnTimeoutEndsTheGroup) {
  std::promise<void> failed;
  auto has_failed = failed.get_future();
  with_ranks(2, [&](YardBackend& backend, int rank) {
    Tensors tensors{at::ones({4})};
    if (rank == 1) {
      has_failed.wait();
      // This one may still end well: what rank 0 gave before it gave up is there.
      const bool failed_at_once = !failure_of(backend.allreduce(tensors, {})).empty();
      EXPECT_TRUE(failed_at_once || !failure_of(backend.barrier({})).empty());
      return;
    }
    c10d::AllreduceOptions options;
    options.timeout = 20ms;
    const std::string failure = failure_of(backend.allreduce(tensors, options));
    EXPECT_NE(failure.find("all_reduce took longer than 20 ms"), std::string::npos) << failure;
    failed.set_value();
  });
}

TEST(BackendTest, AShortenedTimeoutHoldsForLaterOperations) {
  with_ranks(2, [](YardBackend& backend, int rank) {
    backend.setTimeout(20ms);
    EXPECT_EQ(backend.getBackendOptions()->timeout, 20ms);
    if (rank == 1) return;
    Tensors tensors{at::ones({4})};
    EXPECT_NE(failure_of(backend.allreduce(tensors, {})), "");
  });
}

TEST(BackendTest, CoalescedOperationsAreOneWork) {
  with_ranks(2, [](YardBackend& backend, int rank) {
    Tensors a{at::full({4}, rank + 1.0)};
    Tensors b{at::full({2, 2}, double(rank)).t()};
    backend.startCoalescing();
    (void)backend.allreduce(a, {});
    (void)backend.broadcast(b, {.rootRank = 1});
    auto work = backend.endCoalescing();
    EXPECT_TRUE(work->wait());
    EXPECT_EQ(a[0][0].item<float>(), 3);
    EXPECT_EQ(b[0][1][1].item<float>(), 1);
    EXPECT_EQ(work->result().size(), 2u);
  });
}

TEST(BackendTest, AllocatedTensorsAreReducedAndOutliveTheGroup) {
  with_ranks(3, [](YardBackend& backend, int rank) {
    Tensor bucket = backend.allocateTensor(100'003, at::kDouble);
    EXPECT_EQ(bucket.scalar_type(), at::kDouble);
    bucket.copy_(at::arange(100'003, at::kDouble) * (rank + 1));
    sum(backend, bucket);
    const Tensor expected = at::arange(100'003, at::kDouble) * 6;
    EXPECT_TRUE(bucket.equal(expected));
    backend.shutdown();
    EXPECT_TRUE(bucket.equal(expected));
    bucket.zero_();
    EXPECT_THROW(backend.allocateTensor(1, at::kFloat), c10::DistBackendError);
  });
}

TEST(BackendTest, AllocationsOfDifferentSizesFailOnAllRanks) {
  with_ranks(2, [](YardBackend& backend, int rank) {
    EXPECT_THROW(backend.allocateTensor(100 + rank, at::kFloat), c10::DistBackendError);
  });
}

TEST(BackendTest, AfterShutdownEverythingSaysThatTheGroupIsGone) {
  with_ranks(2, [](YardBackend& backend, int) {
    sum(backend, at::ones({1}));
    backend.shutdown();
    Tensors tensors{at::ones({4})};
    try {
      (void)backend.allreduce(tensors, {});
      FAIL();
    } catch (const c10::DistBackendError& e) {
      EXPECT_NE(std::string(e.what_without_backtrace()).find("was destroyed"), std::string::npos);
    }
  });
}

TEST(BackendTest, ArgumentsThatCannotBeAreRefusedBeforeAnyRankWaits) {
  with_ranks(2, [](YardBackend& backend, int) {
    Tensors two{at::ones({1}), at::ones({1})};
    EXPECT_THROW((void)backend.allreduce(two, {}), c10::Error);
    Tensors one{at::ones({3})};
    c10d::AllreduceOptions bits;
    bits.reduceOp = c10d::ReduceOp::BAND;
    EXPECT_THROW((void)backend.allreduce(one, bits), c10::NotImplementedError);
    EXPECT_THROW((void)backend.broadcast(one, {.rootRank = 2}), c10::ValueError);
    Tensor out = at::zeros({5});
    EXPECT_THROW((void)backend._allgather_base(out, one[0], {}), c10::ValueError);
    EXPECT_THROW((void)backend._reduce_scatter_base(out, one[0], {}), c10::ValueError);
    Tensor other = at::zeros({6}, at::kLong);
    EXPECT_THROW((void)backend._allgather_base(other, one[0], {}), c10::TypeError);
    Lists short_list{{at::zeros({3})}};
    EXPECT_THROW((void)backend.allgather(short_list, one, {}), c10::ValueError);
    sum(backend, one[0]);  // the group is as good as before
    EXPECT_EQ(one[0][0].item<float>(), 2);
  });
}

TEST(BackendTest, AnOutputInsideTheInputIsWrittenAfterItWasRead) {
  with_ranks(2, [](YardBackend& backend, int rank) {
    Tensor in = at::arange(8, at::kFloat) + rank;
    Tensor out = in.narrow(0, 2, 4);
    backend._reduce_scatter_base(out, in, {})->wait();
    EXPECT_TRUE(at::equal(out, at::arange(4, at::kFloat) * 2 + 8.0 * rank + 1));
  });
}

TEST(BackendTest, MonitoredBarrierNamesWhoIsMissing) {
  with_ranks(3, [](YardBackend& backend, int rank) {
    EXPECT_NO_THROW(backend.monitoredBarrier({.timeout = 60s}, false));
    if (rank == 1) return;
    try {
      backend.monitoredBarrier({.timeout = 100ms}, true);
      FAIL();
    } catch (const c10::DistBackendError& e) {
      EXPECT_NE(std::string(e.what_without_backtrace()).find("rank 1 (on "), std::string::npos)
          << e.what_without_backtrace();
    }
  });
}

TEST(BackendTest, SparseTensorsAreAdded) {
  with_ranks(2, [](YardBackend& backend, int rank) {
    Tensor dense = at::zeros({5, 2});
    for (int64_t row = rank; row < 5; row += 2 + rank) dense[row].fill_(1.0 + rank);
    Tensor tensor = dense.to_sparse(1);
    sum(backend, tensor);
    EXPECT_EQ(tensor.to_dense()[0][0].item<float>(), 1);
    EXPECT_EQ(tensor.to_dense()[1][1].item<float>(), 2);
    EXPECT_EQ(tensor.to_dense()[4][0].item<float>(), 3);
  });
}

}  // namespace
}  // namespace yard::process_group
