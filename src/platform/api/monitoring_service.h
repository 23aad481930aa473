// CloudWatch metrics over metrics/metric_store.h: put, list, statistics and data.
#pragma once

#include <memory>

#include "api/service.h"
#include "base/clock.h"
#include "metrics/metric_store.h"

namespace yard::api {

// `store` and `clock` outlive it. Metric math (Expression) is refused by name.
std::unique_ptr<Service> make_monitoring_service(metrics::MetricStore& store,
                                                 const Clock& clock = Clock::real());

}  // namespace yard::api
