// The loader, and what it needs to be one Python object in one process.
#include "loader/loader.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <atomic>

#include "bindings.h"
#include "errors.h"
#include "url_store.h"

namespace yard::python {
namespace {

using loader::Batch;
using loader::Loader;
using loader::LoaderOptions;
using loader::LoaderState;
using loader::PixelAllocator;
using loader::PixelBuffer;

using Sources = std::vector<std::pair<double, std::vector<std::string>>>;  // weights and URLs

// A loader and all that must outlive it.
struct Opened {
  StopSource stop;
  CounterRegistry counters;
  std::vector<std::unique_ptr<UrlStore>> stores;
  std::unique_ptr<Loader> loader;

  ~Opened() { stop.request(); }  // requests to a store that is away end at once

  // Whoever lets go of it last waits for its threads, which may need the GIL for their memory.
  static std::shared_ptr<Opened> create() {
    return {new Opened, [](Opened* opened) {
              if (PyGILState_Check() == 0) {
                delete opened;
                return;
              }
              const nb::gil_scoped_release release;
              delete opened;
            }};
  }
};

Result<std::shared_ptr<Opened>> open_loader(const std::shared_ptr<Opened>& opened,
                                            LoaderOptions options, const Sources& sources,
                                            const LoaderState& start) {
  std::vector<std::string> all;
  for (const auto& [weight, urls] : sources) all.insert(all.end(), urls.begin(), urls.end());
  const UrlKind kind = kind_of(all);
  const auto opener = std::make_shared<storage::Opener>(s3_options(opened->stop.token()));
  for (const auto& [weight, urls] : sources) {
    opened->stores.push_back(std::make_unique<UrlStore>(kind, opener));
    UrlStore& store = *opened->stores.back();
    YARD_TRY(store.add(urls));
    loader::SourceOptions source{.store = &store, .weight = weight};
    for (const std::string& url : urls) source.shards.push_back(store.key_of(url));
    options.sources.push_back(std::move(source));
  }
  if (opened->stores.empty()) return Error{Code::kInvalidArgument, "no shards were given"};
  YARD_ASSIGN(opened->loader, Loader::open(*opened->stores[0], options, start, opened->counters));
  return opened;
}

// Pixels that an array shows; they go back to their loader when the last array over them dies.
struct ImageMemory {
  PixelBuffer pixels;
  std::weak_ptr<Opened> opened;
  pid_t pid = ::getpid();

  ~ImageMemory() {
    // After a fork nobody is there to unlock what a thread of the parent had locked.
    if (pid != ::getpid()) return;
    if (const auto alive = opened.lock()) alive->loader->recycle(std::move(pixels));
  }
};

// The Python object in whose memory a batch is; it is let go on any thread.
struct PythonMemory {
  PyObject* owner;
  pid_t pid = ::getpid();

  void operator()(std::byte*) const {
    if (pid != ::getpid()) return;  // the parent's, whose GPU is not ours
    const nb::gil_scoped_acquire acquire;
    Py_DECREF(owner);
  }
};

// `allocate(size_bytes)` gives (object, address of its memory). Copies of the result are made on
// threads that do not hold the GIL.
PixelAllocator allocator_of(nb::callable allocate) {
  const std::shared_ptr<nb::callable> shared(new nb::callable(std::move(allocate)),
                                             [](nb::callable* callable) {
                                               const nb::gil_scoped_acquire acquire;
                                               delete callable;
                                             });
  return [shared](size_t size_bytes) -> std::shared_ptr<std::byte> {
    const nb::gil_scoped_acquire acquire;
    try {
      const auto [owner, address] =
          nb::cast<std::pair<nb::object, uintptr_t>>((*shared)(size_bytes));
      YARD_CHECK(address % PixelBuffer::kAlignment == 0);
      return {reinterpret_cast<std::byte*>(address), PythonMemory{owner.inc_ref().ptr()}};
    } catch (const std::exception& e) {
      // The exception of Python must not outlive the GIL.
      throw std::runtime_error(std::string("memory for a batch: ") + e.what());
    }
  };
}

template <typename Owner>
nb::capsule capsule_of(std::unique_ptr<Owner> owner) {
  return {owner.release(), [](void* p) noexcept { delete static_cast<Owner*>(p); }};
}

nb::dlpack::dtype dtype_of(images::PixelType type) {
  if (type == images::PixelType::kUint8) return nb::dtype<uint8_t>();
  if (type == images::PixelType::kFloat32) return nb::dtype<float>();
  return nb::dtype<int16_t>();  // bfloat16's bits, which NumPy has no type for
}

template <typename T>
nb::object array_of(std::vector<T> values) {
  auto owner = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owner->data();
  const size_t count = owner->size();
  return nb::cast(nb::ndarray<nb::numpy, T>(data, {count}, capsule_of(std::move(owner))));
}

class BoundLoader {
 public:
  BoundLoader(const LoaderOptions& options, const Sources& sources, uint64_t epoch, uint64_t batch)
      : options_(options) {
    const auto opened = Opened::create();
    const auto open = [opened, options, sources, start = LoaderState{epoch, batch}] {
      return open_loader(opened, options, sources, start);
    };
    opened_ = run_interruptibly<std::shared_ptr<Opened>>(open, opened->stop);
  }
  ~BoundLoader() { close(); }
  BoundLoader(const BoundLoader&) = delete;
  BoundLoader& operator=(const BoundLoader&) = delete;

  nb::dict next();
  nb::dict report() const;
  int64_t sample_count() const { return loader().sample_count(); }
  int64_t batches_per_epoch() const { return loader().batches_per_epoch(); }
  int64_t skipped_count() const { return loader().skipped_count(); }

  void close() {
    if (!opened_) return;
    if (pid_ != ::getpid()) {
      // The threads are the parent's; to wait for them here would be for ever.
      new std::shared_ptr<Opened>(std::move(opened_));
      return;
    }
    auto closing = std::move(opened_);
    opened_.reset();
    const nb::gil_scoped_release release;
    closing.reset();
  }

 private:
  Loader& loader() const {
    if (!opened_) raise({Code::kCancelled, "the loader was closed"});
    if (pid_ != ::getpid()) raise({Code::kInternal, "a loader was used behind a fork"});
    return *opened_->loader;
  }
  // Another thread may close the loader while the GIL is released: these work on what next() holds.
  Batch wait_for_batch(Opened& opened);
  nb::object images_of(const std::shared_ptr<Opened>& opened, Batch& batch) const;

  const LoaderOptions options_;
  const pid_t pid_ = ::getpid();
  std::shared_ptr<Opened> opened_;
  bool is_waiting_ = false;  // under the GIL
};

Batch BoundLoader::wait_for_batch(Opened& opened) {
  if (is_waiting_) raise({Code::kInvalidArgument, "another thread is waiting for this loader"});
  is_waiting_ = true;
  struct Done {
    bool& flag;
    ~Done() { flag = false; }
  } const done{is_waiting_};
  while (true) {
    bool is_ready = false;
    {
      const nb::gil_scoped_release release;
      is_ready = opened.loader->wait_for(kSignalInterval);
    }
    loader();  // closed meanwhile?
    if (is_ready) return value_or_raise(opened.loader->next({}));
    check_signals();
  }
}

nb::object BoundLoader::images_of(const std::shared_ptr<Opened>& opened, Batch& batch) const {
  const auto count = size_t(batch.size);
  const auto height = size_t(batch.image_size.height), width = size_t(batch.image_size.width);
  const bool is_planar = options_.render.layout == images::Layout::kPlanar;
  const std::array<size_t, 4> shape = is_planar ? std::array{count, size_t{3}, height, width}
                                                : std::array{count, height, width, size_t{3}};
  // Memory of an allocator is handed out as what the allocator made of it.
  if (const auto* python = std::get_deleter<PythonMemory>(batch.images.memory()))
    return nb::borrow(python->owner);
  auto memory = std::make_unique<ImageMemory>();
  memory->pixels = std::move(batch.images);
  memory->opened = opened;
  std::byte* data = memory->pixels.bytes().data();
  return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(),
                                         capsule_of(std::move(memory)), nullptr,
                                         dtype_of(options_.render.type)));
}

// Where the shard's name ends in "shard.tar/sample"; both may have slashes.
size_t shard_end(const Opened& opened, std::string_view key) {
  for (size_t end = key.find('/'); end != key.npos; end = key.find('/', end + 1))
    for (const auto& store : opened.stores)
      if (store->has_shard(key.substr(0, end))) return end;
  return key.size();
}

nb::list samples_of(const Opened& opened, const Batch& batch) {
  nb::list samples;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const std::string_view key = batch.keys[i];
    const size_t end = shard_end(opened, key);
    nb::dict sample;
    sample["__key__"] = to_str(key.substr(std::min(end + 1, key.size())), "surrogateescape");
    sample["__url__"] = to_str(opened.stores[0]->url_of(key.substr(0, end)), "surrogateescape");
    for (const loader::RawMember& member : batch.samples[i].members)
      sample[to_str(member.extension)] =
          nb::bytes(reinterpret_cast<const char*>(member.content.data()), member.content.size());
    samples.append(std::move(sample));
  }
  return samples;
}

nb::dict BoundLoader::next() {
  loader();
  const std::shared_ptr<Opened> opened = opened_;
  Batch batch = wait_for_batch(*opened);
  nb::dict out;
  if (options_.raw) {
    out["samples"] = samples_of(*opened, batch);
  } else {
    out["images"] = images_of(opened, batch);
    out["image_size"] = std::pair(batch.image_size.width, batch.image_size.height);
    nb::list captions;
    for (const std::string& caption : batch.captions) captions.append(to_str(caption));
    out["captions"] = std::move(captions);
  }
  nb::list keys;
  for (const std::string& key : batch.keys)
    keys.append(to_str(opened->stores[0]->url_of(key), "surrogateescape"));
  out["keys"] = std::move(keys);
  out["sample_ids"] =
      array_of(std::vector<int64_t>(batch.sample_ids.begin(), batch.sample_ids.end()));
  for (uint8_t& flag : batch.is_padding) flag = flag != 0 ? 0 : 1;
  out["mask"] = array_of(std::move(batch.is_padding));
  out["epoch"] = batch.position.epoch;
  out["batch"] = batch.position.batch;
  out["first_sample_number"] = batch.first_sample_number;
  return out;
}

nb::dict BoundLoader::report() const {
  const loader::LoaderReport report = loader().report();
  nb::dict out;
  out["seconds"] = report.seconds;
  out["consumer_wait_seconds"] = report.consumer_wait_seconds;
  out["decode_seconds"] = report.decode_seconds;
  out["read_wait_seconds"] = report.read_wait_seconds;
  out["idle_seconds"] = report.idle_seconds;
  out["thread_count"] = report.thread_count;
  out["sample_count"] = report.sample_count;
  out["skipped_count"] = loader().skipped_count();
  out["read_bytes"] = report.read_bytes;
  out["text"] = to_str(report.to_string());
  return out;
}

// Options that are one of a few, by their names in Python.
template <typename Enum, size_t N>
auto setter(std::array<std::pair<std::string_view, Enum>, N> names,
            Enum& (*field)(LoaderOptions&)) {
  return [names, field](LoaderOptions& options, const std::string& name) {
    for (const auto& [known, value] : names)
      if (known == name) {
        field(options) = value;
        return;
      }
    raise({Code::kInvalidArgument, "unknown option '" + name + "'"});
  };
}

template <typename Enum>
using Names = std::pair<std::string_view, Enum>;

void bind_choices(nb::class_<LoaderOptions>& options) {
  using images::Filter, images::Layout, images::PixelType, loader::BadSamplePolicy,
      loader::ShardMode, shards::EndPolicy;
  options
      .def("set_mode", setter(
                           std::array{Names<ShardMode>{"global", ShardMode::kGlobal},
                                      Names<ShardMode>{"independent", ShardMode::kIndependent}},
                           +[](LoaderOptions& o) -> ShardMode& { return o.mode; }))
      .def("set_ends", setter(
                           std::array{Names<EndPolicy>{"drop", EndPolicy::kDrop},
                                      Names<EndPolicy>{"pad", EndPolicy::kPad},
                                      Names<EndPolicy>{"wrap", EndPolicy::kWrap}},
                           +[](LoaderOptions& o) -> EndPolicy& { return o.ends; }))
      .def("set_on_bad", setter(
                             std::array{Names<BadSamplePolicy>{"fail", BadSamplePolicy::kFail},
                                        Names<BadSamplePolicy>{"skip", BadSamplePolicy::kSkip}},
                             +[](LoaderOptions& o) -> BadSamplePolicy& { return o.bad_samples; }))
      .def("set_dtype", setter(
                            std::array{Names<PixelType>{"uint8", PixelType::kUint8},
                                       Names<PixelType>{"float32", PixelType::kFloat32},
                                       Names<PixelType>{"bfloat16", PixelType::kBfloat16}},
                            +[](LoaderOptions& o) -> PixelType& { return o.render.type; }))
      .def("set_layout", setter(
                             std::array{Names<Layout>{"NCHW", Layout::kPlanar},
                                        Names<Layout>{"NHWC", Layout::kInterleaved}},
                             +[](LoaderOptions& o) -> Layout& { return o.render.layout; }))
      .def("set_filter", setter(
                             std::array{Names<Filter>{"bilinear", Filter::kBilinear},
                                        Names<Filter>{"bicubic", Filter::kBicubic}},
                             +[](LoaderOptions& o) -> Filter& { return o.render.filter; }));
}

void bind_options(nb::module_& module) {
  nb::class_<LoaderOptions> options(module, "LoaderOptions");
  options.def(nb::init<>())
      .def_rw("seed", &LoaderOptions::seed)
      .def_rw("shuffle", &LoaderOptions::shuffle)
      .def_rw("rank", &LoaderOptions::rank)
      .def_rw("world_size", &LoaderOptions::world_size)
      .def_rw("global_batch_size", &LoaderOptions::global_batch_size)
      .def_rw("turn", &LoaderOptions::turn)
      .def_rw("turn_count", &LoaderOptions::turn_count)
      .def_rw("image_size", &LoaderOptions::image_size)
      .def_rw("random_flip", &LoaderOptions::random_flip)
      .def_rw("random_crop", &LoaderOptions::random_crop)
      .def_rw("image_members", &LoaderOptions::image_members)
      .def_rw("caption_member", &LoaderOptions::caption_member)
      .def_rw("filter", &LoaderOptions::filter)
      .def_rw("metadata_member", &LoaderOptions::metadata_member)
      .def_rw("raw", &LoaderOptions::raw)
      .def_rw("quarantine_path", &LoaderOptions::quarantine_path)
      .def_rw("thread_count", &LoaderOptions::thread_count)
      .def_rw("prefetch_batch_count", &LoaderOptions::prefetch_batch_count)
      .def_rw("read_ahead_bytes_max", &LoaderOptions::read_ahead_bytes_max)
      .def_rw("index_bytes_max", &LoaderOptions::index_bytes_max)
      .def_rw("cache_bytes_max", &LoaderOptions::cache_bytes_max)
      .def("set_allocator",
           [](LoaderOptions& o, nb::callable allocate) {
             o.allocator = allocator_of(std::move(allocate));
           })
      .def("set_store_patience",
           [](LoaderOptions& o, int64_t s) { o.store_patience = std::chrono::seconds(s); })
      .def("set_dct_scaling", [](LoaderOptions& o, bool on) { o.render.dct_scaling = on; })
      .def("set_mean", [](LoaderOptions& o, std::array<float, 3> mean) { o.render.mean = mean; })
      .def("set_std", [](LoaderOptions& o, std::array<float, 3> std) { o.render.std = std; })
      .def("set_random_resized_crop",
           [](LoaderOptions& o, std::array<double, 2> area, std::array<double, 2> aspect) {
             o.random_resized_crop = images::RandomRule{.area_min = area[0],
                                                        .area_max = area[1],
                                                        .aspect_min = aspect[0],
                                                        .aspect_max = aspect[1]};
           })
      .def("set_buckets", [](LoaderOptions& o, const std::vector<std::pair<int, int>>& sizes) {
        for (const auto& [width, height] : sizes) o.aspect_buckets.push_back({width, height});
      });
  bind_choices(options);
}

}  // namespace

void bind_loader(nb::module_& module) {
  bind_options(module);
  nb::class_<BoundLoader>(module, "Loader")
      .def(nb::init<const LoaderOptions&, const Sources&, uint64_t, uint64_t>(), nb::arg("options"),
           nb::arg("sources"), nb::arg("epoch"), nb::arg("batch"))
      .def("next", &BoundLoader::next)
      .def("report", &BoundLoader::report)
      .def("close", &BoundLoader::close)
      .def_prop_ro("sample_count", &BoundLoader::sample_count)
      .def_prop_ro("batches_per_epoch", &BoundLoader::batches_per_epoch)
      .def_prop_ro("skipped_count", &BoundLoader::skipped_count);
}

}  // namespace yard::python
