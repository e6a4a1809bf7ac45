-- Health of a JobSet for Argo CD.
local hs = {status = "Progressing", message = "not started yet"}
local queue = nil
local run = nil
if obj.metadata ~= nil and obj.metadata.labels ~= nil then
  run = obj.metadata.labels["slipway.dev/run"] or obj.metadata.labels["slipway.dev/pipeline"]
  queue = obj.metadata.labels["kueue.x-k8s.io/queue-name"]
end
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    if condition.status == "True" and condition.type == "Failed" then
      hs.status = "Degraded"
      hs.message = (condition.reason or "Failed") .. ": " .. (condition.message or "")
      if run ~= nil then
        -- one exit code for each end that no other pod may follow; which one it was is in the store alone
        hs.message = "cancelled, a duplicate of a run elsewhere, or failed: `launcher status " .. run
          .. "` says which. " .. hs.message
      end
      return hs
    end
    if condition.status == "True" and condition.type == "Completed" then
      hs.status = "Healthy"
      hs.message = condition.message or "completed"
      return hs
    end
  end
end
if obj.spec ~= nil and obj.spec.suspend == true then
  if queue ~= nil then
    hs.message = "waits in the queue " .. queue
  else
    hs.status = "Suspended"
    hs.message = "suspended by hand"
  end
  return hs
end
if obj.status ~= nil and obj.status.replicatedJobsStatus ~= nil then
  local parts = {}
  for _, one in ipairs(obj.status.replicatedJobsStatus) do
    local word = "waiting"
    if (one.failed or 0) > 0 then
      word = "failed"
    elseif (one.succeeded or 0) > 0 then
      word = "done"
    elseif (one.ready or 0) > 0 then
      word = "running"
    elseif (one.active or 0) > 0 then
      word = "starting"
    end
    table.insert(parts, one.name .. " " .. word)
  end
  hs.message = table.concat(parts, ", ")
  if (obj.status.restarts or 0) > 0 then
    hs.message = hs.message .. "; restarts: " .. obj.status.restarts
  end
end
return hs
