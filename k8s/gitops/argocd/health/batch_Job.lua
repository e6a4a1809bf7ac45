-- Health of a Job for Argo CD. The built-in check calls a Job Healthy as soon as it carries a condition `Suspended` that
-- is "False", which is every Job that Kueue has let go on: it would be green while it runs, and nobody would see it fail.
local hs = {status = "Progressing", message = "not started yet"}
local queue = nil
local failing = nil
local run = nil
if obj.metadata ~= nil and obj.metadata.labels ~= nil then
  run = obj.metadata.labels["slipway.dev/run"]
  queue = obj.metadata.labels["kueue.x-k8s.io/queue-name"]
end
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    if condition.status == "True" and condition.type == "Failed" then
      hs.status = "Degraded"
      hs.message = (condition.reason or "Failed") .. ": " .. (condition.message or "")
      if run ~= nil and condition.reason == "PodFailurePolicy" then
        -- one exit code for each end that no other pod may follow; which one it was is in the store alone
        hs.message = "cancelled, a duplicate of a run elsewhere, or failed for good: `launcher status " .. run
          .. "` says which. " .. hs.message
      end
      return hs
    end
    if condition.status == "True" and condition.type == "Complete" then
      hs.status = "Healthy"
      hs.message = condition.message or "complete"
      return hs
    end
    if condition.status == "True" and condition.type == "FailureTarget" then
      -- it has failed already, and its last pods are on their way out; `Failed` is added after this one
      failing = "failing: " .. (condition.reason or "") .. ": " .. (condition.message or "")
    end
  end
end
if failing ~= nil then
  hs.message = failing
  return hs
end
if obj.spec ~= nil and obj.spec.suspend == true then
  if queue ~= nil then
    -- Kueue suspends what waits and resumes it by itself: nobody has to do anything
    hs.message = "waits in the queue " .. queue
  else
    hs.status = "Suspended"
    hs.message = "suspended by hand"
  end
  return hs
end
if obj.status ~= nil then
  local active = obj.status.active or 0
  local ready = obj.status.ready or 0
  if active > 0 then
    hs.message = active .. " active, " .. ready .. " ready, " .. (obj.status.succeeded or 0) .. " succeeded, "
      .. (obj.status.failed or 0) .. " failed"
  elseif obj.status.startTime ~= nil then
    -- between two pods, or a pod that was refused (quota, Pod Security): only the events say which
    hs.message = "no pod now; see its events"
  end
end
return hs
